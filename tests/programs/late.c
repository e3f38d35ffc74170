/* late RANK CALL FILE: this rank comes to SCR_Init or to SCR_Start_output ("init", "start") only once FILE is there. */
#define _POSIX_C_SOURCE 200809L
#include <mpi.h>
#include <scr.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void check(const char *call, int code) {
    if (code == SCR_SUCCESS) return;
    fprintf(stderr, "late: %s returned %d\n", call, code);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void come(int is_late, const char *call, char **argv) {
    const struct timespec pause = {0, 10000000};
    while (is_late && strcmp(argv[2], call) == 0 && access(argv[3], F_OK) != 0) nanosleep(&pause, NULL);
}

int main(int argc, char **argv) {
    int rank, size, token = 7;
    MPI_Request request;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int is_late = argc > 3 && rank == atoi(argv[1]);
    /* It would take any message on this communicator. */
    MPI_Irecv(&token, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
    come(is_late, "init", argv);
    check("SCR_Init", SCR_Init());
    come(is_late, "start", argv);
    check("SCR_Start_output", SCR_Start_output("plot.1", SCR_FLAG_OUTPUT));
    check("SCR_Complete_output", SCR_Complete_output(1));
    MPI_Send(&rank, 1, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (token != (rank + size - 1) % size) check("a receive of the application", token);
    check("SCR_Finalize", SCR_Finalize());
    if (rank == 0) puts("DONE");
    MPI_Finalize();
    return 0;
}
