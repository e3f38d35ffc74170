/* lends: another number of ranks reads a checkpoint, whose files come from the caches of other nodes.
 *
 *   lends write BYTES        each rank writes a file of ckpt.1, and the job ends as after a failure
 *   lends read BYTES         each rank reads the files of all that wrote it, or where they are as many its own, and compares every
 *                            byte
 *   lends ask BYTES FOLDER   each rank asks for the file of the last of them, and writes to FOLDER/rank_R what SCR_Route_file has
 *                            returned, whether every byte is right, the path, and why there is none. A rank may die meanwhile: the
 *                            others go on until they have written that, though the launcher wants to end them. Under an MPI with
 *                            ULFM they recover, and read as in `read`
 */
#define _POSIX_C_SOURCE 200809L
#include <mpi.h>
#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5
#define HAS_ULFM
#include <mpi-ext.h>
#endif

#include "scr.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static MPI_Comm comm = MPI_COMM_WORLD;
static int rank; /* in it */
static size_t bytes;

static void check(int good, const char *what)
{
    if (good)
        return;
    printf("FAIL %d %s: %s\n", rank, what, SCR_Last_error());
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static unsigned char byte_of(int writer, size_t at)
{
    return (unsigned char)((at * 2654435761u >> 24) ^ (at >> 16) ^ (unsigned)writer * 41u);
}

static void write_one(void)
{
    char file[64], path[SCR_MAX_FILENAME];
    unsigned char *data = malloc(bytes);
    FILE *out;

    for (size_t at = 0; at < bytes; at++)
        data[at] = byte_of(rank, at);
    check(SCR_Start_output("ckpt.1", SCR_FLAG_CHECKPOINT) == SCR_SUCCESS, "Start_output");
    snprintf(file, sizeof file, "ckpt.1/rank_%d.dat", rank);
    check(SCR_Route_file(file, path) == SCR_SUCCESS, "Route_file");
    out = fopen(path, "wb");
    check(SCR_Complete_output(out && fwrite(data, 1, bytes, out) == bytes && fclose(out) == 0) == SCR_SUCCESS, "Complete_output");
    free(data);
}

static int is_right(const char *path, int writer)
{
    FILE *in = fopen(path, "rb");
    size_t at = 0;
    int c;

    while (in && (c = getc(in)) != EOF && at < bytes && c == byte_of(writer, at))
        at++;
    return in && fclose(in) == 0 && c == EOF && at == bytes;
}

static int begin(void)
{
    int have = 0, writers = 0;

    check(SCR_Have_restart(&have, NULL) == SCR_SUCCESS && have, "Have_restart");
    check(SCR_Start_restart(NULL) == SCR_SUCCESS, "Start_restart");
    check(SCR_Restart_ranks(&writers) == SCR_SUCCESS, "Restart_ranks");
    return writers;
}

static int route(int writer, char *path)
{
    char file[SCR_MAX_FILENAME];

    check(SCR_Restart_file(writer, 0, file) == SCR_SUCCESS, "Restart_file");
    return SCR_Route_file(file, path);
}

static void read_all(void)
{
    const int writers = begin();
    char path[SCR_MAX_FILENAME];
    int ranks;

    MPI_Comm_size(comm, &ranks);
    for (int writer = 0; writer < writers; writer++) {
        if (ranks == writers && rank != writer)
            continue;
        check(route(writer, path) == SCR_SUCCESS, "Route_file");
        check(is_right(path, writer), "every byte");
    }
    check(SCR_Complete_restart(1) == SCR_SUCCESS, "Complete_restart");
    printf("READ %d %d\n", rank, writers);
}

static void ask(const char *folder)
{
    const int writer = begin() - 1;
    char path[SCR_MAX_FILENAME] = "", name[SCR_MAX_FILENAME], done[SCR_MAX_FILENAME];
    int code;
    FILE *out;

    MPI_Barrier(comm);
    code = route(writer, path);
    snprintf(name, sizeof name, "%s/.rank_%d", folder, rank);
    snprintf(done, sizeof done, "%s/rank_%d", folder, rank);
    out = fopen(name, "w");
    check(out != NULL, "the folder");
    fprintf(out, "%d %s %s\n%s\n", code, code == 0 && is_right(path, writer) ? "right" : "wrong", code == 0 ? path : "-",
            code != 0 ? SCR_Last_error() : "");
    fclose(out);
    rename(name, done);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    setvbuf(stdout, NULL, _IOLBF, 0);
    check(argc > 2, "arguments");
    bytes = strtoull(argv[2], NULL, 10);
    check(SCR_Init() == SCR_SUCCESS, "Init");
    if (strcmp(argv[1], "write") == 0)
        write_one();
    else if (strcmp(argv[1], "read") == 0)
        read_all();
    else {
        signal(SIGTERM, SIG_IGN);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        ask(argv[3]);
#ifdef HAS_ULFM
        check(SCR_Complete_restart(0) == SCR_ERR_MPI, "Complete_restart after a death");
        MPIX_Comm_shrink(MPI_COMM_WORLD, &comm);
        MPI_Comm_rank(comm, &rank);
        check(SCR_Recover(comm) == SCR_SUCCESS, "Recover");
        read_all();
#else
        _exit(0);
#endif
    }
    MPI_Barrier(comm);
    if (rank == 0)
        printf("DONE\n");
    MPI_Finalize();
    return 0;
}
