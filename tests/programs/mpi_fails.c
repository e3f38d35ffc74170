/* mpi_fails CALL NTH: the NTH look for a message that rank 1 makes in CALL ("init", "complete", "finalize") fails. Each rank prints
 * what the call returns.
 */
#include <mpi.h>
#include <scr.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, looks_left;

/* In place of that of the MPI library. */
int MPI_Iprobe(int source, int tag, MPI_Comm comm, int *found, MPI_Status *status)
{
    if (looks_left > 0 && --looks_left == 0)
        return MPI_ERR_OTHER;
    return PMPI_Iprobe(source, tag, comm, found, status);
}

static int is_next(const char *call, char **argv)
{
    int is_it = strcmp(argv[1], call) == 0;
    looks_left = is_it && rank == 1 ? atoi(argv[2]) : 0;
    return is_it;
}

static void end(int code)
{
    looks_left = 0;
    printf("rank %d got %d\n", rank, code);
    MPI_Finalize();
    exit(0);
}

int main(int argc, char **argv)
{
    int is_it, code;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 3)
        MPI_Abort(MPI_COMM_WORLD, 2);
    is_it = is_next("init", argv);
    code = SCR_Init();
    if (is_it)
        end(code);
    SCR_Start_output("ckpt.1", SCR_FLAG_CHECKPOINT);
    /* Otherwise a rank may still be in that call when another one fails in the next. */
    MPI_Barrier(MPI_COMM_WORLD);
    is_it = is_next("complete", argv);
    code = SCR_Complete_output(1);
    if (is_it)
        end(code);
    is_it = is_next("finalize", argv);
    code = SCR_Finalize();
    if (is_it)
        end(code);
    return 1;
}
