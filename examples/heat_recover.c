/* heat_recover: the computation of heat2d, in a job that goes on without a new launch after processes or nodes have died.
 *
 * It needs an MPI that goes on as well: Open MPI 5 with ULFM. The last processes of the job are spares, which wait. Once a
 * process dies, all others revoke their communicators, make new ones without the dead, and let spares take their places. If no
 * spare is left, fewer ranks share the plate. Then SCR_Recover gives the newest checkpoint back. See `repair` and `main`.
 *
 *   mpicc heat_recover.c -o heat_recover -lscr
 *   mpirun --with-ft ulfm --mca async_mpi_finalize 1 -n 5 ./heat_recover --spares 1 --steps 1000
 */
#define _POSIX_C_SOURCE 200809L
#include <mpi.h>
#include <mpi-ext.h>

#include "scr.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct {
    int size, steps, every, spares; /* points per row, steps, a checkpoint every so many, processes that wait */
    int kill_rank, kill_step;       /* this rank of MPI_COMM_WORLD kills itself after this step */
} o = {512, 500, 50, 1, -1, 0};

static MPI_Comm world;                /* all processes that live */
static MPI_Comm comm = MPI_COMM_NULL; /* those that compute */
static int wanted;                    /* how many should compute */
static int rank = -1, ranks;          /* in `comm`; -1 for a spare */
static int first_rank;                /* in MPI_COMM_WORLD */

/* The plate: the rows of this rank, with a border row above and one below. */
static int first, rows;
static double *now, *next;

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- The computation: every function returns whether it has succeeded ---- */

static int first_row(int r, int n)
{
    return (int)((long)o.size * r / n);
}

static double initial(int row, int column)
{
    if (row == 0)
        return 100.0;
    if (abs(row - o.size / 3) < o.size / 10 && abs(column - o.size / 4) < o.size / 10)
        return 80.0;
    if (abs(row - 2 * o.size / 3) < o.size / 12 && abs(column - 3 * o.size / 5) < o.size / 8)
        return 60.0 + 0.25 * (column % 7);
    return 0.0;
}

static void new_plate(void)
{
    size_t points;

    first = first_row(rank, ranks);
    rows = first_row(rank + 1, ranks) - first;
    points = (size_t)(rows + 2) * (size_t)o.size;
    free(now);
    free(next);
    now = calloc(points, sizeof *now);
    next = calloc(points, sizeof *next);
    if (now == NULL || next == NULL)
        MPI_Abort(MPI_COMM_WORLD, 2);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < o.size; j++)
            now[(size_t)(i + 1) * o.size + j] = initial(first + i, j);
}

static int step_plate(void)
{
    const int up = rank > 0 ? rank - 1 : MPI_PROC_NULL, down = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
    const size_t n = (size_t)o.size;
    double *top = now + n, *bottom = now + (size_t)rows * n, *old = now;

    if (MPI_Sendrecv(top, o.size, MPI_DOUBLE, up, 1, bottom + n, o.size, MPI_DOUBLE, down, 1, comm,
                     MPI_STATUS_IGNORE) != MPI_SUCCESS ||
        MPI_Sendrecv(bottom, o.size, MPI_DOUBLE, down, 2, now, o.size, MPI_DOUBLE, up, 2, comm, MPI_STATUS_IGNORE) !=
            MPI_SUCCESS)
        return 0;
    for (int i = 1; i <= rows; i++) {
        const double *above = now + (i - 1) * n, *here = above + n, *below = here + n;
        double *out = next + i * n;
        const int row = first + i - 1;
        memcpy(out, here, n * sizeof(double));
        if (row == 0 || row == o.size - 1)
            continue;
        for (size_t j = 1; j + 1 < n; j++)
            out[j] = here[j] + 0.2 * (above[j] + below[j] + here[j - 1] + here[j + 1] - 4.0 * here[j]);
    }
    now = next;
    next = old;
    return 1;
}

/* The checksum of all rows in their order, as heat2d prints it. */
static int answer(void)
{
    double *row = malloc((size_t)o.size * sizeof *row);
    uint64_t sum = 14695981039346656037u; /* FNV-1a */
    int good = row != NULL;

    for (int i = 1; i <= rows && rank > 0 && good; i++)
        good = MPI_Send(now + (size_t)i * o.size, o.size, MPI_DOUBLE, 0, 3, comm) == MPI_SUCCESS;
    for (int from = 0; from < ranks && rank == 0 && good; from++) {
        for (int i = first_row(from, ranks); i < first_row(from + 1, ranks) && good; i++) {
            if (from == 0)
                memcpy(row, now + (size_t)(i + 1) * o.size, (size_t)o.size * sizeof *row);
            else
                good = MPI_Recv(row, o.size, MPI_DOUBLE, from, 3, comm, MPI_STATUS_IGNORE) == MPI_SUCCESS;
            for (size_t b = 0; b < (size_t)o.size * sizeof *row; b++)
                sum = (sum ^ ((unsigned char *)row)[b]) * 1099511628211u;
        }
    }
    free(row);
    if (rank == 0 && good)
        printf("heat_recover: the answer has checksum %016llx\n", (unsigned long long)sum);
    return good;
}

/* ---- Checkpoint and restart ---- */

struct header {
    int32_t step, first, rows;
};

static int save(int step, const char *path)
{
    const struct header h = {step, first, rows};
    const size_t points = (size_t)rows * (size_t)o.size;
    FILE *file = fopen(path, "wb");
    int good;

    if (file == NULL)
        return 0;
    good = fwrite(&h, sizeof h, 1, file) == 1 && fwrite(now + o.size, sizeof(double), points, file) == points;
    return fclose(file) == 0 && good;
}

/* Whether the run can go on: it can without a checkpoint, but not without a rank. */
static int checkpoint(int step)
{
    char name[64], file[128], path[SCR_MAX_FILENAME];
    int code;

    snprintf(name, sizeof name, "heat.%06d", step);
    snprintf(file, sizeof file, "%s/rank_%d.heat", name, rank);
    if ((code = SCR_Start_output(name, SCR_FLAG_CHECKPOINT)) != SCR_SUCCESS)
        return code != SCR_ERR_MPI;
    code = SCR_Complete_output(SCR_Route_file(file, path) == SCR_SUCCESS && save(step, path));
    return code != SCR_ERR_MPI;
}

/* Loads those rows of a file into the spare field that are this rank's; gives the step that they belong to, or -1. */
static int load(const char *path, int *loaded)
{
    const size_t row = (size_t)o.size * sizeof(double);
    FILE *file = fopen(path, "rb");
    struct header h;
    int from, to, good;

    if (file == NULL)
        return -1;
    if ((good = fread(&h, sizeof h, 1, file) == 1)) {
        from = h.first > first ? h.first : first;
        to = h.first + h.rows < first + rows ? h.first + h.rows : first + rows;
        good = from < to && fseek(file, (long)(sizeof h + (size_t)(from - h.first) * row), SEEK_SET) == 0 &&
               fread(next + (size_t)(from - first + 1) * o.size, row, (size_t)(to - from), file) == (size_t)(to - from);
        *loaded += to - from;
    }
    fclose(file);
    return good ? h.step : -1;
}

/* Another number of ranks may have written the checkpoint. */
static int load_rows(const char *name)
{
    char file[SCR_MAX_FILENAME + 64], path[SCR_MAX_FILENAME];
    int writers, loaded = 0, step = -1;

    if (SCR_Restart_ranks(&writers) != SCR_SUCCESS)
        return -1;
    for (int r = 0; r < writers; r++) {
        if (first_row(r + 1, writers) <= first || first_row(r, writers) >= first + rows)
            continue;
        snprintf(file, sizeof file, "%s/rank_%d.heat", name, r);
        if (SCR_Route_file(file, path) != SCR_SUCCESS || (step = load(path, &loaded)) < 0)
            return -1;
    }
    return loaded == rows ? step : -1;
}

/* Gives the step of the newest checkpoint that all ranks can read, 0 if there is none, or -1 if a rank has died. */
static int restart(void)
{
    char name[SCR_MAX_FILENAME];
    double *old;
    int have, step, code;

    while ((code = SCR_Have_restart(&have, name)) == SCR_SUCCESS && have) {
        if ((code = SCR_Start_restart(name)) != SCR_SUCCESS)
            break;
        step = load_rows(name);
        if ((code = SCR_Complete_restart(step >= 0)) == SCR_SUCCESS) {
            old = now, now = next, next = old;
            return step;
        }
        if (code == SCR_ERR_MPI)
            break;
    }
    return code == SCR_SUCCESS ? 0 : -1;
}

/* From the restart to the answer, unless a rank dies. */
static int compute(void)
{
    static int attempts;
    int step, needed, code;

    code = attempts++ == 0 ? SCR_Init_comm(comm) : SCR_Recover(comm);
    if (code != SCR_SUCCESS && code != SCR_ERR_MPI)
        MPI_Abort(MPI_COMM_WORLD, 3);
    new_plate();
    if (code != SCR_SUCCESS || (step = restart()) < 0)
        return 0;
    if (rank == 0)
        printf("heat_recover: %d ranks, from step %d\n", ranks, step);
    for (int from = step; step < o.steps;) {
        if (!step_plate())
            return 0;
        if (step++ == from && rank == 0)
            printf("heat_recover: step %d is done at %.6f\n", step, seconds());
        if (first_rank == o.kill_rank && step == o.kill_step)
            kill(getpid(), SIGKILL);
        if ((code = SCR_Need_checkpoint(&needed)) == SCR_ERR_MPI || (needed && !checkpoint(step)))
            return 0;
    }
    return answer() && SCR_Finalize() != SCR_ERR_MPI;
}

/* ---- Processes that die ---- */

/* Deals the places 0 to `ranks` - 1 out among the processes of `world`: who has one keeps it as long as no place stays empty. */
static int deal_places(void)
{
    int size, me, places[1024], taken[1024] = {0}, free_place = 0;

    MPI_Comm_size(world, &size);
    MPI_Comm_rank(world, &me);
    if (size > 1024 || MPI_Allgather(&rank, 1, MPI_INT, places, 1, MPI_INT, world) != MPI_SUCCESS)
        return 0;
    ranks = size < wanted ? size : wanted;
    for (int p = 0; p < size; p++)
        if (places[p] >= 0 && places[p] < ranks)
            taken[places[p]] = 1;
    for (int p = 0; p < size; p++) {
        if (places[p] >= 0 && places[p] < ranks)
            continue;
        while (free_place < ranks && taken[free_place])
            free_place++;
        places[p] = free_place < ranks ? free_place++ : -1;
    }
    rank = places[me];
    return MPI_Comm_split(world, rank >= 0 ? 0 : MPI_UNDEFINED, rank, &comm) == MPI_SUCCESS;
}

/* Makes communicators of those that live. Another one may die meanwhile. The old ones are not freed: messages may be left on
 * them, and Open MPI 5.0 could deliver these to a new communicator. */
static void repair(void)
{
    MPI_Comm old;
    int good;

    do {
        old = world;
        comm = MPI_COMM_NULL;
        MPIX_Comm_shrink(old, &world);
        MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
        if (!(good = deal_places()))
            MPIX_Comm_revoke(world); /* before it agrees: others may wait for it */
        MPIX_Comm_agree(world, &good);
    } while (!good);
    if (comm != MPI_COMM_NULL)
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
}

static void parse(int argc, char **argv)
{
    const struct { const char *name; int *value; } numbers[] = {
        {"--size", &o.size},     {"--steps", &o.steps},         {"--every", &o.every},
        {"--spares", &o.spares}, {"--kill-rank", &o.kill_rank}, {"--kill-step", &o.kill_step},
    };

    for (int i = 1; i + 1 < argc; i += 2)
        for (size_t n = 0; n < sizeof numbers / sizeof numbers[0]; n++)
            if (strcmp(argv[i], numbers[n].name) == 0)
                *numbers[n].value = atoi(argv[i + 1]);
}

int main(int argc, char **argv)
{
    int good, size;

    MPI_Init(&argc, &argv);
    setvbuf(stdout, NULL, _IOLBF, 0);
    parse(argc, argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_dup(MPI_COMM_WORLD, &world);
    MPI_Comm_rank(world, &first_rank);
    MPI_Comm_size(world, &size);
    wanted = size - o.spares;
    SCR_Configf("SCR_CHECKPOINT_INTERVAL=%d", o.every);
    SCR_Config("SCR_RESTART_OTHER_RANKS=1");
    for (repair();; repair()) {
        good = rank < 0 || compute();
        if (good) /* a spare waits here for the others, which come with the answer, or revoke the communicator */
            good = MPI_Barrier(world) == MPI_SUCCESS;
        if (!good) {
            MPIX_Comm_revoke(world);
            if (comm != MPI_COMM_NULL)
                MPIX_Comm_revoke(comm);
        }
        MPIX_Comm_agree(world, &good);
        if (good)
            break;
    }
    free(now);
    free(next);
    MPI_Finalize();
    return 0;
}
