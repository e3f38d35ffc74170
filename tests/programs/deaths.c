/* deaths: what calls of SCR return once a rank has died, under an MPI with ULFM. The last rank dies before it calls
 * SCR_Start_output, and the others have called it. With the argument `leave` it dies within the call, in which nobody waits for it any
 * more. All wait for rank 1, which has not called it: it knows of the death, and has gone to repair its communicator, where it
 * waits for the others.
 *
 * Prints "RETURNED rank code" if a call has returned within seconds, "FAIL what" for what is otherwise than it should be, and "DONE".
 */
#define _POSIX_C_SOURCE 200809L
#include <mpi.h>
#include <mpi-ext.h>

#include "scr.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int rank, ranks, handled;

static void expect(int good, const char *what)
{
    if (!good)
        printf("FAIL %d %s\n", rank, what);
}

/* It must not run within the library. */
static void count(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    (void)code;
    handled++;
}

static void wait_for_death(void)
{
    int found;

    while (MPI_Iprobe(MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE) == MPI_SUCCESS)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
}

static void call(void)
{
    const double began = MPI_Wtime();
    char path[SCR_MAX_FILENAME];
    int flag = 7, code = SCR_Start_output("ckpt.1", SCR_FLAG_CHECKPOINT);

    expect(MPI_Wtime() - began < 10, "it took seconds");
    expect(strstr(SCR_Last_error(), "has died") != NULL, SCR_Last_error());
    printf("RETURNED %d %d\n", rank, code);
    for (int i = 0; i < 1000; i++)
        expect(SCR_Need_checkpoint(&flag) == SCR_ERR_MPI && flag == 0, "a later call");
    expect(SCR_Route_file("ckpt.1/file", path) != SCR_SUCCESS, "Route_file after a start that has failed");
    expect(SCR_Complete_output(1) != SCR_SUCCESS, "Complete_output");
    expect(MPI_Wtime() - began < 10, "later calls took seconds");
    expect(handled == 0, "the application's handler has run");
}

int main(int argc, char **argv)
{
    const int leaves = argc > 1 && strcmp(argv[1], "leave") == 0;
    MPI_Errhandler handler;
    MPI_Comm alive;
    int flag = 7;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_create_errhandler(count, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    if (SCR_Init() != SCR_SUCCESS)
        MPI_Abort(MPI_COMM_WORLD, 3);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == ranks - 1) {
        alarm(1); /* it ends the process; the others wait in their call by then */
        if (leaves)
            SCR_Start_output("ckpt.1", SCR_FLAG_CHECKPOINT);
        pause();
    }
    if (leaves && rank == 1)
        wait_for_death();
    else
        call();
    MPIX_Comm_shrink(MPI_COMM_WORLD, &alive);
    MPI_Comm_set_errhandler(alive, handler);
    expect(SCR_Recover(alive) == SCR_SUCCESS, "Recover");
    expect(SCR_Need_checkpoint(&flag) == SCR_SUCCESS, "Need_checkpoint");
    expect(SCR_Finalize() == SCR_SUCCESS, "Finalize");
    MPI_Errhandler_free(&handler);
    if (rank == 0)
        printf("DONE\n");
    MPI_Finalize();
    return 0;
}
