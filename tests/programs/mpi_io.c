/* mpi_io N: each N ranks write a file together through MPI-IO, in two checkpoints. A second run reads the newest one and compares
 * every byte. */
#include <mpi.h>
#include <scr.h>
#include <stdio.h>
#include <stdlib.h>

enum { NUMBERS = 5000 };
static int numbers[NUMBERS];

static void fill(int rank, int step) {
    for (int i = 0; i < NUMBERS; i++) numbers[i] = (rank * NUMBERS + i) * 7 + step;
}

static int is_right(int rank, int step) {
    for (int i = 0; i < NUMBERS; i++) {
        if (numbers[i] != (rank * NUMBERS + i) * 7 + step) return 0;
    }
    return 1;
}

/* Collective over the ranks of a file: each has a part of it, written through collective buffers. */
static int io(MPI_Comm group, const char *path, int mode) {
    int rank, code;
    MPI_File file;
    MPI_Comm_rank(group, &rank);
    MPI_Offset start = (MPI_Offset)rank * (MPI_Offset)sizeof numbers;
    if (MPI_File_open(group, path, mode, MPI_INFO_NULL, &file) != MPI_SUCCESS) return 0;
    if (mode & MPI_MODE_WRONLY) code = MPI_File_write_at_all(file, start, numbers, NUMBERS, MPI_INT, MPI_STATUS_IGNORE);
    else code = MPI_File_read_at_all(file, start, numbers, NUMBERS, MPI_INT, MPI_STATUS_IGNORE);
    return (MPI_File_close(&file) == MPI_SUCCESS) & (code == MPI_SUCCESS);
}

static int transfer(MPI_Comm group, int number, const char *dataset, int mode) {
    char name[SCR_MAX_FILENAME], path[SCR_MAX_FILENAME];
    snprintf(name, sizeof name, "%.200s/part.%d", dataset, number);
    return SCR_Route_file(name, path) == SCR_SUCCESS && io(group, path, mode);
}

int main(int argc, char **argv) {
    int rank, has_restart = 0, step = 0, ok;
    char dataset[SCR_MAX_FILENAME];
    MPI_Comm group;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int number = argc > 1 ? rank / atoi(argv[1]) : rank;
    MPI_Comm_split(MPI_COMM_WORLD, number, rank, &group);
    if (SCR_Init() != SCR_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 1);
    SCR_Have_restart(&has_restart, dataset);
    if (has_restart) {
        SCR_Start_restart(dataset);
        ok = transfer(group, number, dataset, MPI_MODE_RDONLY);
        sscanf(dataset, "ckpt.%d", &step);
        if (!ok || !is_right(rank, step)) printf("BAD bytes on rank %d\n", rank);
        if (SCR_Complete_restart(ok) == SCR_SUCCESS && rank == 0) printf("RESTARTED %s\n", dataset);
    }
    for (int next = 1; next <= 2 && !has_restart; next++) {
        snprintf(dataset, sizeof dataset, "ckpt.%d", next);
        SCR_Start_output(dataset, SCR_FLAG_CHECKPOINT);
        fill(rank, next);
        ok = transfer(group, number, dataset, MPI_MODE_CREATE | MPI_MODE_WRONLY);
        ok = SCR_Complete_output(ok) == SCR_SUCCESS;
        if (rank == 0) printf("COMPLETE %s %d\n", dataset, !ok);
    }
    SCR_Finalize();
    MPI_Comm_free(&group);
    MPI_Finalize();
    if (rank == 0) puts("DONE");
    return 0;
}
