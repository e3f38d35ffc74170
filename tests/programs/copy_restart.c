/* copy_restart FOLDER [NEXT]: restarts from whatever there is and copies this rank's file, NAME/rank_R.ckpt, to
 * FOLDER/rank_R, so that a test can compare it with what C SCR has written. Prints the name of the dataset. Then writes the
 * same as a checkpoint called NEXT, if that is given.
 */
#include "scr.h"

#include <mpi.h>
#include <stdio.h>

static int copy(const char *from, const char *to)
{
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    int c, good = in != NULL && out != NULL;

    while (good && (c = getc(in)) != EOF)
        good = putc(c, out) != EOF;
    if (in != NULL)
        fclose(in);
    return out != NULL && fclose(out) == 0 && good;
}

/* Writes FOLDER/rank_R as this rank's file of a new checkpoint. */
static int write_next(const char *folder, const char *next, int rank)
{
    char from[SCR_MAX_FILENAME], file[SCR_MAX_FILENAME + 64], path[SCR_MAX_FILENAME];
    int good;

    snprintf(from, sizeof from, "%s/rank_%d", folder, rank);
    snprintf(file, sizeof file, "%s/rank_%d.ckpt", next, rank);
    if (SCR_Start_output(next, SCR_FLAG_CHECKPOINT) != SCR_SUCCESS)
        return 0;
    good = SCR_Route_file(file, path) == SCR_SUCCESS && copy(from, path);
    return SCR_Complete_output(good) == SCR_SUCCESS;
}

int main(int argc, char **argv)
{
    char name[SCR_MAX_FILENAME], file[SCR_MAX_FILENAME + 64], path[SCR_MAX_FILENAME], target[SCR_MAX_FILENAME];
    int rank, have = 0, good;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc < 2 || SCR_Init() != SCR_SUCCESS)
        MPI_Abort(MPI_COMM_WORLD, 3);
    if (SCR_Have_restart(&have, name) == SCR_SUCCESS && have && SCR_Start_restart(name) == SCR_SUCCESS) {
        snprintf(file, sizeof file, "%s/rank_%d.ckpt", name, rank);
        snprintf(target, sizeof target, "%s/rank_%d", argv[1], rank);
        good = SCR_Route_file(file, path) == SCR_SUCCESS && copy(path, target);
        if (SCR_Complete_restart(good) == SCR_SUCCESS && rank == 0)
            printf("RESTARTED %s\n", name);
    }
    if (argc > 2 && write_next(argv[1], argv[2], rank) && rank == 0)
        printf("COMPLETE %s 0\n", argv[2]);
    SCR_Finalize();
    MPI_Finalize();
    if (rank == 0)
        printf("DONE\n");
    return 0;
}
