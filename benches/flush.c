/* Measures flushes and fetches as an application sees them.
 *
 * flush BYTES COUNT  writes COUNT checkpoints of BYTES per rank. Prints for each the seconds of its phases, of the rank that
 *                    took longest; what comes after writing is counted from when the last rank had written. With COUNT 0 it
 *                    restarts and prints how long SCR_Init took, a fetch included where the cache is empty.
 *
 * With BENCH_TURNS=FOLDER it makes FOLDER/ask.N before checkpoint N, counted from 1, and goes on when FOLDER/go.N is there. */
#include <dirent.h>
#include <mpi.h>
#include <scr.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int rank;

/* One clock for all ranks, which are on one machine. */
static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static double latest(double time)
{
    double last = 0;
    MPI_Allreduce(&time, &last, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return last;
}

static void print_phase(const char *phase, double seconds)
{
    double most = 0;
    MPI_Reduce(&seconds, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("phase=%s secs=%.6f\n", phase, most);
}

static void fill(char *data, size_t bytes, unsigned seed)
{
    for (size_t at = 0; at + 4 <= bytes; at += 4) {
        seed = seed * 1664525u + 1013904223u;
        memcpy(data + at, &seed, sizeof seed);
    }
}

static int write_file(const char *path, const char *data, size_t bytes)
{
    FILE *file = fopen(path, "w");
    if (!file)
        return 0;
    setvbuf(file, NULL, _IONBF, 0);
    int ok = fwrite(data, 1, bytes, file) == bytes;
    return fclose(file) == 0 && ok;
}

/* Whether a checkpoint is to be flushed and is not safe yet: it has its summary in the end, and the flush its record there until all is done. */
static int is_flushing(int id)
{
    const char *prefix = getenv("SCR_PREFIX"), *every = getenv("SCR_FLUSH");
    char folder[1024];
    int found = 0;

    if (every && (atoi(every) == 0 || id % atoi(every) != 0))
        return 0;
    if (rank == 0) {
        snprintf(folder, sizeof folder, "%s/.scr/scr.dataset.%d/summary.scr", prefix ? prefix : ".", id);
        found = access(folder, F_OK) != 0;
        snprintf(folder, sizeof folder, "%s/.scr", prefix ? prefix : ".");
        DIR *dir = opendir(folder);
        for (struct dirent *entry; dir && (entry = readdir(dir));)
            found |= strncmp(entry->d_name, "flush.", 6) == 0 && strcmp(entry->d_name, "flush.scr") != 0;
        if (dir)
            closedir(dir);
    }
    MPI_Bcast(&found, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return found;
}

/* The processors are free meanwhile. */
static void let_others_work(int id)
{
    const char *turns = getenv("BENCH_TURNS");
    char path[1024];

    if (!turns)
        return;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        snprintf(path, sizeof path, "%s/ask.%d", turns, id);
        FILE *ask = fopen(path, "w");
        if (!ask || fclose(ask) != 0)
            MPI_Abort(MPI_COMM_WORLD, 1);
    }
    snprintf(path, sizeof path, "%s/go.%d", turns, id);
    while (access(path, F_OK) != 0) {
        /* Who measures has gone. */
        if (access(turns, F_OK) != 0)
            MPI_Abort(MPI_COMM_WORLD, 1);
        usleep(1000);
    }
}

static void one_checkpoint(int step, const char *data, size_t bytes)
{
    char name[64], file[128], path[SCR_MAX_FILENAME];
    int stop;

    snprintf(name, sizeof name, "bench.%d", step);
    snprintf(file, sizeof file, "%s/rank_%d", name, rank);
    let_others_work(step + 1);
    MPI_Barrier(MPI_COMM_WORLD);
    double began = now();
    SCR_Start_output(name, SCR_FLAG_CHECKPOINT);
    double started = now();
    int valid = SCR_Route_file(file, path) == SCR_SUCCESS && write_file(path, data, bytes);
    double written = now();
    if (SCR_Complete_output(valid) != SCR_SUCCESS)
        MPI_Abort(MPI_COMM_WORLD, 1);
    double completed = now();
    while (is_flushing(step + 1)) {
        usleep(2000);
        SCR_Should_exit(&stop);
    }
    double safe = now();
    double all_written = latest(written);
    print_phase("start", started - began);
    print_phase("write", written - started);
    print_phase("complete", completed - all_written);
    print_phase("visible", completed - began);
    print_phase("safe", safe - all_written);
}

int main(int argc, char *argv[])
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    size_t bytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 64u << 20;
    int count = argc > 2 ? atoi(argv[2]) : 5, have = 0;
    char *data = malloc(bytes + 1);

    fill(data, bytes, (unsigned)rank + 1);
    MPI_Barrier(MPI_COMM_WORLD);
    double began = now();
    if (SCR_Init() != SCR_SUCCESS)
        MPI_Abort(MPI_COMM_WORLD, 1);
    print_phase("init", now() - began);
    SCR_Have_restart(&have, NULL);
    if (rank == 0)
        printf("restarted=%d\n", have);
    for (int step = 0; step < count; step++)
        one_checkpoint(step, data, bytes);
    free(data);
    /* Without SCR_Finalize the next run is one after a failure. */
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
