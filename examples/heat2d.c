/* heat2d: heat spreads over a square plate, computed by all ranks together, with checkpoints through SCR.
 *
 * Each rank owns a block of rows and swaps its border rows with its two neighbours in every step. Every few
 * steps the ranks save their rows. A job that died continues from the last checkpoint, with any number of ranks,
 * and computes the same answer. All calls of SCR are in `checkpoint`, `restart` and `main`. Without -DUSE_SCR, or with --no-scr, it is a
 * plain MPI program.
 *
 *   mpicc -DUSE_SCR heat2d.c -o heat2d -lscr        mpirun -n 4 ./heat2d --steps 1000 --result heat.out
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <mpi.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#ifdef USE_SCR
#include "scr.h"
#endif

struct options {
    int size;           /* the plate has size x size points */
    int steps;          /* steps to compute */
    int every;          /* a checkpoint every so many steps */
    const char *result; /* file for the final field, or NULL */
    int kill_rank;      /* this rank kills itself ... */
    int kill_step;      /* ... after this step, or never if 0 */
    int pause_ms;       /* wait so long in each step */
    int no_scr;         /* run without SCR */
};

struct plate {
    int size;       /* points per row */
    int first;      /* first row of this rank */
    int rows;       /* rows of this rank */
    double *now;    /* rows + 2 rows: one border row above and one below */
    double *next;
};

static int rank, ranks;

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "heat2d: rank %d: %s: %s\n", rank, what, why);
    MPI_Abort(MPI_COMM_WORLD, 2);
    exit(2);
}

/* ---- The computation ---- */

/* First row of rank r of n: rows are dealt out as evenly as they go. */
static int first_row(int size, int r, int n)
{
    return (int)((long)size * r / n);
}

/* Cold everywhere, apart from two hot spots and one edge. */
static double initial(int size, int row, int column)
{
    if (row == 0)
        return 100.0;
    if (abs(row - size / 3) < size / 10 && abs(column - size / 4) < size / 10)
        return 80.0;
    if (abs(row - 2 * size / 3) < size / 12 && abs(column - 3 * size / 5) < size / 8)
        return 60.0 + 0.25 * (column % 7);
    return 0.0;
}

static struct plate new_plate(int size)
{
    struct plate p;
    size_t bytes;

    p.size = size;
    p.first = first_row(size, rank, ranks);
    p.rows = first_row(size, rank + 1, ranks) - p.first;
    bytes = (size_t)(p.rows + 2) * (size_t)size * sizeof(double);
    p.now = calloc(1, bytes);
    p.next = calloc(1, bytes);
    if (p.now == NULL || p.next == NULL)
        fail("the plate", strerror(ENOMEM));
    for (int i = 0; i < p.rows; i++)
        for (int j = 0; j < size; j++)
            p.now[(size_t)(i + 1) * size + j] = initial(size, p.first + i, j);
    return p;
}

/* Fills the two border rows from the neighbours. */
static void swap_borders(struct plate *p)
{
    const int up = rank > 0 ? rank - 1 : MPI_PROC_NULL;
    const int down = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
    double *top = p->now + p->size, *bottom = p->now + (size_t)p->rows * p->size;

    MPI_Sendrecv(top, p->size, MPI_DOUBLE, up, 1, bottom + p->size, p->size, MPI_DOUBLE, down, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(bottom, p->size, MPI_DOUBLE, down, 2, p->now, p->size, MPI_DOUBLE, up, 2,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void swap_fields(struct plate *p)
{
    double *old = p->now;
    p->now = p->next;
    p->next = old;
}

/* One step: every inner point moves towards the mean of its four neighbours; the edges stay as they are. */
static void step_plate(struct plate *p)
{
    const size_t n = (size_t)p->size;

    swap_borders(p);
    for (int i = 1; i <= p->rows; i++) {
        const double *above = p->now + (i - 1) * n, *here = above + n, *below = here + n;
        double *out = p->next + i * n;
        const int row = p->first + i - 1;
        memcpy(out, here, n * sizeof(double));
        if (row == 0 || row == p->size - 1)
            continue;
        for (size_t j = 1; j + 1 < n; j++)
            out[j] = here[j] + 0.2 * (above[j] + below[j] + here[j - 1] + here[j + 1] - 4.0 * here[j]);
    }
    swap_fields(p);
}

/* ---- Checkpoint and restart ---- */

#ifdef USE_SCR
struct header {
    int32_t step, size, first, rows;
};

/* Saves this rank's rows to `path`. */
static int save(const struct plate *p, int step, const char *path)
{
    const struct header h = {step, p->size, p->first, p->rows};
    const size_t points = (size_t)p->rows * (size_t)p->size;
    FILE *file = fopen(path, "wb");
    int good;

    if (file == NULL)
        return 0;
    good = fwrite(&h, sizeof h, 1, file) == 1 && fwrite(p->now + p->size, sizeof(double), points, file) == points;
    return fclose(file) == 0 && good;
}

/* Loads those rows of the file `path` into the spare field that are this rank's; gives the step they belong to, or -1. */
static int load(struct plate *p, const char *path, int *loaded)
{
    const size_t row = (size_t)p->size * sizeof(double);
    struct header h;
    FILE *file = fopen(path, "rb");
    int good, from = p->first, to = p->first + p->rows;

    if (file == NULL)
        return -1;
    good = fread(&h, sizeof h, 1, file) == 1 && h.size == p->size;
    if (good) {
        from = h.first > from ? h.first : from;
        to = h.first + h.rows < to ? h.first + h.rows : to;
        good = from < to && fseek(file, (long)(sizeof h + (size_t)(from - h.first) * row), SEEK_SET) == 0 &&
               fread(p->next + (size_t)(from - p->first + 1) * p->size, row, to - from, file) == (size_t)(to - from);
    }
    fclose(file);
    *loaded += to - from;
    return good ? h.step : -1;
}

/* Loads this rank's rows from the files of those ranks that had them: another number may have written the checkpoint. */
static int load_rows(struct plate *p, const char *name)
{
    char file[SCR_MAX_FILENAME + 64], path[SCR_MAX_FILENAME];
    int writers, loaded = 0, step = -1;

    if (SCR_Restart_ranks(&writers) != SCR_SUCCESS)
        return -1;
    for (int r = 0; r < writers; r++) {
        if (first_row(p->size, r + 1, writers) <= p->first || first_row(p->size, r, writers) >= p->first + p->rows)
            continue;
        snprintf(file, sizeof file, "%s/rank_%d.heat", name, r);
        if (SCR_Route_file(file, path) != SCR_SUCCESS || (step = load(p, path, &loaded)) < 0)
            return -1;
    }
    return loaded == p->rows ? step : -1;
}

static void checkpoint(const struct plate *p, int step)
{
    char name[64], file[128], path[SCR_MAX_FILENAME];
    int valid, outcome;

    snprintf(name, sizeof name, "heat.%06d", step);
    snprintf(file, sizeof file, "%s/rank_%d.heat", name, rank);
    if (SCR_Start_output(name, SCR_FLAG_CHECKPOINT) != SCR_SUCCESS)
        return; /* the run goes on without this checkpoint */
    valid = SCR_Route_file(file, path) == SCR_SUCCESS && save(p, step, path);
    outcome = SCR_Complete_output(valid);
    if (rank == 0 && outcome == SCR_SUCCESS)
        printf("heat2d: checkpoint %s is complete\n", name);
}

/* Loads the newest checkpoint that all ranks can read. Gives its step, or 0 if there is none. */
static int restart(struct plate *p)
{
    char name[SCR_MAX_FILENAME];
    int code, have, step;

    while ((code = SCR_Have_restart(&have, name)) == SCR_SUCCESS && have) {
        if ((code = SCR_Start_restart(name)) != SCR_SUCCESS)
            break;
        step = load_rows(p, name);
        if (SCR_Complete_restart(step >= 0) == SCR_SUCCESS) {
            swap_fields(p); /* only now: all ranks have read the same checkpoint */
            if (rank == 0)
                printf("heat2d: restarted from %s at step %d\n", name, step);
            return step;
        }
    }
    if (code != SCR_SUCCESS) /* there may be checkpoints: never begin anew and write over them */
        fail("cannot restart", SCR_Last_error());
    return 0;
}
#endif

/* ---- The answer ---- */

/* Gathers the rows at rank 0 in their order: writes them to `path` if there is one, and prints a checksum. */
static void answer(const struct plate *p, const char *path)
{
    FILE *file = NULL;
    double *row = malloc((size_t)p->size * sizeof(double));
    uint64_t sum = 14695981039346656037u; /* FNV-1a */

    if (row == NULL)
        fail("a row", strerror(ENOMEM));
    if (rank > 0) {
        for (int i = 1; i <= p->rows; i++)
            MPI_Send(p->now + (size_t)i * p->size, p->size, MPI_DOUBLE, 0, 3, MPI_COMM_WORLD);
        free(row);
        return;
    }
    if (path != NULL && (file = fopen(path, "wb")) == NULL)
        fail(path, strerror(errno));
    for (int from = 0; from < ranks; from++) {
        for (int i = first_row(p->size, from, ranks); i < first_row(p->size, from + 1, ranks); i++) {
            if (from == 0)
                memcpy(row, p->now + (size_t)(i + 1) * p->size, (size_t)p->size * sizeof(double));
            else
                MPI_Recv(row, p->size, MPI_DOUBLE, from, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            for (size_t b = 0; b < (size_t)p->size * sizeof(double); b++)
                sum = (sum ^ ((unsigned char *)row)[b]) * 1099511628211u;
            if (file != NULL && fwrite(row, sizeof(double), (size_t)p->size, file) != (size_t)p->size)
                fail(path, strerror(errno));
        }
    }
    if (file != NULL && fclose(file) != 0)
        fail(path, strerror(errno));
    printf("heat2d: the answer has checksum %016llx\n", (unsigned long long)sum);
    free(row);
}

/* ---- Options and main loop ---- */

static void usage(void)
{
    if (rank == 0)
        fprintf(stderr,
                "usage: heat2d [--size N] [--steps N] [--every N] [--result FILE] [--no-scr]\n"
                "              [--kill-rank R --kill-step S] [--pause-ms MS]\n");
    MPI_Finalize();
    exit(2);
}

static struct options parse(int argc, char **argv)
{
    struct options o = {.size = 512, .steps = 500, .every = 50, .kill_rank = -1};
    const struct { const char *name; int *value; int least; } numbers[] = {
        {"--size", &o.size, 3},           {"--steps", &o.steps, 0},         {"--every", &o.every, 1},
        {"--kill-rank", &o.kill_rank, 0}, {"--kill-step", &o.kill_step, 1}, {"--pause-ms", &o.pause_ms, 0},
    };
    const size_t count = sizeof numbers / sizeof numbers[0];

    for (int i = 1; i < argc; i++) {
        size_t n = 0;
        char *end;
        if (strcmp(argv[i], "--no-scr") == 0) {
            o.no_scr = 1;
            continue;
        }
        if (i + 1 == argc)
            usage();
        if (strcmp(argv[i], "--result") == 0) {
            o.result = argv[++i];
            continue;
        }
        while (n < count && strcmp(argv[i], numbers[n].name) != 0)
            n++;
        if (n == count)
            usage();
        *numbers[n].value = (int)strtol(argv[++i], &end, 10);
        if (*end != '\0' || end == argv[i] || *numbers[n].value < numbers[n].least)
            usage();
    }
    if (o.size < ranks)
        usage();
    return o;
}

int main(int argc, char **argv)
{
    int step = 0, stop = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    setvbuf(stdout, NULL, _IOLBF, 0);
    const struct options o = parse(argc, argv);
    struct plate p = new_plate(o.size);

#ifdef USE_SCR
    if (!o.no_scr) {
        SCR_Configf("SCR_CHECKPOINT_INTERVAL=%d", o.every); /* unless the environment or a file says otherwise */
        SCR_Config("SCR_RESTART_OTHER_RANKS=1");
        if (SCR_Init() != SCR_SUCCESS)
            fail("SCR_Init failed", SCR_Last_error());
        step = restart(&p);
    }
#endif
    if (rank == 0)
        printf("heat2d: %d ranks, %d x %d points, steps %d to %d\n", ranks, o.size, o.size, step + 1, o.steps);

    while (step < o.steps && !stop) {
        step_plate(&p);
        step++;
        if (o.pause_ms > 0)
            nanosleep(&(struct timespec){o.pause_ms / 1000, o.pause_ms % 1000 * 1000000L}, NULL);
        if (rank == 0 && step % o.every == 0)
            printf("heat2d: step %d of %d\n", step, o.steps);
#ifdef USE_SCR
        if (!o.no_scr) {
            int needed = 0;
            SCR_Need_checkpoint(&needed);
            if (needed) {
                checkpoint(&p, step);
                SCR_Should_exit(&stop);
            }
        }
#endif
        if (rank == o.kill_rank && step == o.kill_step) {
            printf("heat2d: rank %d dies after step %d\n", rank, step);
            kill(getpid(), SIGKILL);
        }
    }

    if (stop && step < o.steps) {
        if (rank == 0)
            printf("heat2d: asked to stop, at step %d\n", step);
    } else {
        answer(&p, o.result);
    }
#ifdef USE_SCR
    if (!o.no_scr)
        SCR_Finalize();
#endif
    free(p.now);
    free(p.next);
    MPI_Finalize();
    return 0;
}
