/* Measures checkpoints and restarts as an application sees them.
 *
 * checkpoint BYTES COUNT [SECONDS busy|idle]
 *                         restarts where there is something to restart from, and compares every byte; then writes COUNT
 *                         checkpoints of BYTES per rank. Each phase is a line of names and values: the bytes of all
 *                         ranks, and the seconds of the slowest one. After each checkpoint it computes for SECONDS of
 *                         processor time, which takes longer where others work on the processors too, or is idle.
 *
 * Every figure is to be seen beside that of a memcpy of the same bytes on all ranks at once, taken in the same run. */
#include <mpi.h>
#include <scr.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COPIES = 5 };

static int rank, ranks;

static double slowest(double seconds)
{
    double most = 0;
    MPI_Reduce(&seconds, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    return most;
}

static void print_phase(const char *phase, double bytes, double seconds)
{
    seconds = slowest(seconds);
    if (rank == 0)
        printf("phase=%s bytes=%.0f secs=%.9f GiB/s=%.3f\n", phase, bytes * ranks, seconds,
               bytes * ranks / seconds / (1 << 30));
}

static void fill(char *data, size_t bytes, unsigned seed)
{
    for (size_t at = 0; at < bytes; at++) {
        seed = seed * 1664525u + 1013904223u;
        data[at] = (char)(seed >> 24);
    }
}

static double copy_once(char *to, const char *from, size_t bytes)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double began = MPI_Wtime();
    memcpy(to, from, bytes);
    /* Nobody reads the copy, and a compiler that knows that makes none. */
    __asm__ volatile("" : : "r"(to) : "memory");
    return MPI_Wtime() - began;
}

static void measure_copies(const char *data, size_t bytes)
{
    char *copy = malloc(bytes + 1);
    fill(copy, bytes, 0); /* so that its pages are there */
    for (int times = 0; times < COPIES; times++)
        print_phase("memcpy", bytes, copy_once(copy, data, bytes));
    free(copy);
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

static int holds(const char *path, const char *data, size_t bytes)
{
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    char *found = malloc(bytes + 1);
    int same = fread(found, 1, bytes + 1, file) == bytes && memcmp(found, data, bytes) == 0;
    free(found);
    fclose(file);
    return same;
}

static void compare_restart(const char *data, size_t bytes)
{
    char name[SCR_MAX_FILENAME], file[SCR_MAX_FILENAME + 32], path[SCR_MAX_FILENAME];
    int have = 0, good = 1;
    SCR_Have_restart(&have, name);
    if (have) {
        SCR_Start_restart(name);
        snprintf(file, sizeof file, "%s/rank_%d", name, rank);
        good = SCR_Route_file(file, path) == SCR_SUCCESS && holds(path, data, bytes);
        if (SCR_Complete_restart(good) != SCR_SUCCESS)
            MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (rank == 0)
        printf("restarted=%d\n", have);
}

static void one_checkpoint(int step, const char *data, size_t bytes)
{
    char name[64], file[128], path[SCR_MAX_FILENAME];
    snprintf(name, sizeof name, "bench.%d", step);
    snprintf(file, sizeof file, "%s/rank_%d", name, rank);
    MPI_Barrier(MPI_COMM_WORLD);
    double began = MPI_Wtime();
    SCR_Start_output(name, SCR_FLAG_CHECKPOINT);
    double started = MPI_Wtime();
    int valid = SCR_Route_file(file, path) == SCR_SUCCESS && write_file(path, data, bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    double written = MPI_Wtime();
    if (SCR_Complete_output(valid) != SCR_SUCCESS)
        MPI_Abort(MPI_COMM_WORLD, 1);
    double completed = MPI_Wtime();
    print_phase("start", bytes, started - began);
    print_phase("write", bytes, written - started);
    print_phase("encode", bytes, completed - written);
    print_phase("start-to-complete", bytes, completed - began);
}

/* The processor time that this thread has taken. */
static double own_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static void compute(double seconds, int busy, size_t bytes)
{
    double began = MPI_Wtime();
    if (busy) {
        volatile double sum = 0;
        for (double end = own_seconds() + seconds; own_seconds() < end;)
            for (int turn = 0; turn < 10000; turn++)
                sum += turn;
    } else {
        struct timespec time = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
        nanosleep(&time, NULL);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    print_phase("compute", bytes, MPI_Wtime() - began);
    int flag;
    SCR_Should_exit(&flag);
}

int main(int argc, char *argv[])
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    size_t bytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 64u << 20;
    int count = argc > 2 ? atoi(argv[2]) : 5;
    double seconds = argc > 3 ? atof(argv[3]) : 0;
    int busy = argc > 4 && strcmp(argv[4], "busy") == 0;
    char *data = malloc(bytes + 1);
    fill(data, bytes, rank + 1);
    measure_copies(data, bytes);

    MPI_Barrier(MPI_COMM_WORLD);
    double began = MPI_Wtime();
    if (SCR_Init() != SCR_SUCCESS)
        MPI_Abort(MPI_COMM_WORLD, 1);
    print_phase("init", bytes, MPI_Wtime() - began);
    compare_restart(data, bytes);
    for (int step = 0; step < count; step++) {
        one_checkpoint(step, data, bytes);
        if (seconds > 0)
            compute(seconds, busy, bytes);
    }
    free(data);
    /* Without SCR_Finalize the next run finds the checkpoint in cache, as after a failure. */
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
