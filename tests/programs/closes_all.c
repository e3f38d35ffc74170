/* An application that closes descriptors that it has not opened: those of files that scr keeps in cache or in the prefix
   directory. It looks at no code that a call returns but for that of SCR_Finalize. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "scr.h"

static void checkpoint(int step, int rank) {
    char name[32], file[64], path[SCR_MAX_FILENAME];
    FILE *out;
    int valid;
    snprintf(name, sizeof name, "ckpt.%d", step);
    snprintf(file, sizeof file, "ckpt.%d/rank_%d", step, rank);
    printf("START %s %d\n", name, SCR_Start_output(name, SCR_FLAG_CHECKPOINT));
    valid = SCR_Route_file(file, path) == SCR_SUCCESS && (out = fopen(path, "w")) != NULL;
    if (valid) {
        fprintf(out, "step %d of rank %d\n", step, rank);
        valid = fclose(out) == 0;
    }
    SCR_Complete_output(valid);
}

/* Those of MPI stay open. */
static void close_those_of_scr(const char *below) {
    DIR *folder = opendir("/proc/self/fd");
    struct dirent *entry;
    char link[64], target[4096];
    int closed[1024], count = 0, i;
    if (folder == NULL) exit(9);
    while ((entry = readdir(folder)) != NULL) {
        ssize_t length;
        int fd = atoi(entry->d_name);
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        length = readlink(link, target, sizeof target - 1);
        if (length <= 0 || fd < 3 || count == 1024) continue;
        target[length] = '\0';
        if (strstr(target, below) != NULL) closed[count++] = fd;
    }
    closedir(folder);
    for (i = 0; i < count; i++) close(closed[i]);
    printf("CLOSED %d\n", count);
}

int main(int argc, char **argv) {
    int rank, code;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 2 || SCR_Init() != SCR_SUCCESS) return 8;
    checkpoint(1, rank);
    close_those_of_scr(argv[1]);
    checkpoint(2, rank);
    code = SCR_Finalize();
    printf("FINALIZE %d\n", code);
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
