/* ckpt_test: the application of the job tests. Writes datasets of any shape through SCR and restarts from them.
 *
 * Every byte of a file follows from the dataset's name, the rank, the file's number and a salt that the file
 * contains, so that a restart checks all of them. The results are printed in lines for a program to read:
 *   FRESH | RESTARTED name          from what the job starts
 *   REFUSED name                    a restart failed, on this or another rank
 *   START name code                 SCR_Start_output failed
 *   COMPLETE name code              how a dataset ended (0 is success)
 *   CODES name code ...             the same of each rank, where --codes asks for it
 *   BAD rank name what              a file is not what was written
 *   EXIT                            SCR_Should_exit said so
 *   DONE                            all went to its end
 * If the job has parts, each with a session and a prefix directory of its own, lines begin with `PART number: `.
 */
#define _POSIX_C_SOURCE 200809L
#include <mpi.h>

#include "scr.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct options {
    int datasets;        /* datasets to write after the start or restart */
    int files;           /* files per rank */
    int size;            /* bytes of a file; uneven ones are around it */
    int uneven;          /* sizes differ between ranks and files, and some files are empty */
    int empty_rank;      /* this rank writes no file */
    int shared;          /* all ranks write their files one after the other into one file */
    int folders;         /* each rank has a folder of its own, and the base names are the same in all */
    int salt;            /* changes the contents */
    int output;          /* datasets are output too */
    int unnamed;         /* pass NULL for the names */
    int same_name;       /* use one name again and again */
    int invalid_rank;    /* this rank says that its files are not valid ... */
    int invalid_dataset; /* ... in this dataset */
    int reject_rank;     /* this rank rejects the first `reject` restarts */
    int reject;
    int kill_rank;       /* this rank kills itself in dataset ... */
    int kill_dataset;
    const char *kill_at; /* ... at: start, route, write, complete, after; or so many microseconds into complete */
    int no_finalize;     /* forget SCR_Finalize */
    int at_exit;         /* call SCR_Finalize in an exit handler as well, also where SCR_Init has failed */
    int thread;          /* route the files in a thread other than that of MPI_Init */
    int read_only;       /* restart, and no more */
    int codes;           /* print the result of each dataset on every rank */
    int parts;           /* so many parts, to which the ranks belong in turn */
    int meet;            /* the parts meet after this dataset */
    int kill_part;       /* the part of `kill_rank` */
    int writers;         /* so many ranks use SCR, the first ones */
    int coupled;         /* the ranks of another program do not */
    int world;           /* all ranks do, by SCR_Init_comm */
    int sessions;        /* so many sessions, one after the other */
    int needed;          /* compute before each dataset until SCR asks for a checkpoint; ask once more at the end */
    int dear;            /* from this dataset on, files are LARGER times as large */
};

/* The command that rank 0 runs at a point of a dataset while the others wait: --run POINT:DATASET:COMMAND, with a point that all
 * ranks reach. */
static const char *commands[4];

static struct options o = {.datasets = 3, .files = 1, .size = 100000, .empty_rank = -1, .invalid_rank = -1,
                           .reject_rank = -1, .kill_rank = -1, .kill_at = "", .sessions = 1};
enum { LARGER = 8000 };
static int rank, ranks, part = -1;
static MPI_Comm comm;

/* Prints a line of the results. */
#define tell(...) (begin_line(), printf(__VA_ARGS__))

static void begin_line(void)
{
    if (part >= 0)
        printf("PART %d: ", part);
}

/* ---- What a file holds ---- */

enum { SALTS_OF_A_PART = 1000 };

struct header {
    uint64_t salt;
    int64_t bytes;
};

static uint64_t mix(uint64_t x)
{
    x ^= x >> 30, x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27, x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t seed_of(const char *name, int file, uint64_t salt)
{
    uint64_t seed = salt;
    for (const char *c = name; *c != '\0'; c++)
        seed = mix(seed * 31 + (unsigned char)*c);
    return mix(mix(seed + (uint64_t)rank) + (uint64_t)file);
}

/* Bytes of this rank's file; a file is empty, or at least has its header. */
static int64_t bytes_of(int file)
{
    const int kind = (rank * 5 + file * 3) % 7;
    int64_t bytes = o.size;

    if (o.uneven && kind == 3)
        return 0;
    if (o.uneven)
        bytes += (int64_t)kind * o.size / 5 - o.size / 3 + kind * 17 + rank;
    return bytes < (int64_t)sizeof(struct header) ? (int64_t)sizeof(struct header) : bytes;
}

static int files_of_rank(void)
{
    return rank == o.empty_rank ? 0 : o.files;
}

static unsigned char *contents(const char *name, int file, uint64_t salt, int64_t bytes)
{
    unsigned char *data = malloc((size_t)bytes + 8);
    const struct header h = {salt, bytes};
    uint64_t state = seed_of(name, file, salt);

    if (data == NULL)
        MPI_Abort(MPI_COMM_WORLD, 3);
    for (int64_t i = 0; i < bytes; i += 8) {
        state = mix(state + 0x9e3779b97f4a7c15u);
        memcpy(data + i, &state, 8);
    }
    if (bytes > 0)
        memcpy(data, &h, sizeof h);
    return data;
}

static void file_name(char *out, size_t room, const char *dataset, int file)
{
    if (o.shared)
        snprintf(out, room, "%s/shared", dataset);
    else if (o.folders)
        snprintf(out, room, "%s/r%d/state.%d", dataset, rank, file);
    else
        snprintf(out, room, "%s/rank_%d.%d", dataset, rank, file);
}

/* ---- Writing ---- */

static void die_at(const char *point, int dataset)
{
    if (rank == o.kill_rank && (part < 0 || part == o.kill_part) && dataset == o.kill_dataset && strcmp(point, o.kill_at) == 0)
        kill(getpid(), SIGKILL);
}

static void run_at(const char *point, int dataset)
{
    char here[64];
    const int length = snprintf(here, sizeof here, "%s:%d:", point, dataset);

    for (size_t i = 0; i < sizeof commands / sizeof commands[0] && commands[i] != NULL; i++) {
        if (strncmp(commands[i], here, (size_t)length) != 0)
            continue;
        MPI_Barrier(comm);
        if (rank == 0 && system(commands[i] + length) != 0)
            printf("BAD 0 - a command failed: %s\n", commands[i] + length);
        MPI_Barrier(comm);
    }
}

static void on_alarm(int signal)
{
    (void)signal;
    kill(getpid(), SIGKILL);
}

/* Death while SCR_Complete_output is at work: after a number of microseconds. */
static void set_alarm(int dataset)
{
    struct itimerval timer = {{0, 0}, {0, 0}};
    const long microseconds = strtol(o.kill_at, NULL, 10);

    if (rank != o.kill_rank || dataset != o.kill_dataset || microseconds <= 0)
        return;
    signal(SIGALRM, on_alarm);
    timer.it_value.tv_sec = microseconds / 1000000;
    timer.it_value.tv_usec = microseconds % 1000000;
    setitimer(ITIMER_REAL, &timer, NULL);
}

/* The place in the file on disk where a file begins. */
static long place_of(int file)
{
    return o.shared ? (long)rank * o.files * o.size + (long)file * o.size : 0;
}

struct routing {
    const char *name;
    char *path;
    int code;
};

static void *route_in_thread(void *argument)
{
    struct routing *routing = argument;

    routing->code = SCR_Route_file(routing->name, routing->path);
    return NULL;
}

static int route(const char *name, char *path)
{
    struct routing routing = {name, path, SCR_FAILURE};
    pthread_t thread;

    if (!o.thread)
        route_in_thread(&routing);
    else if (pthread_create(&thread, NULL, route_in_thread, &routing) != 0 || pthread_join(thread, NULL) != 0)
        MPI_Abort(MPI_COMM_WORLD, 3);
    return routing.code;
}

static int write_file(const char *dataset, int number, int file)
{
    char name[SCR_MAX_FILENAME], path[SCR_MAX_FILENAME];
    const int64_t bytes = bytes_of(file);
    unsigned char *data;
    FILE *out;
    int good;

    file_name(name, sizeof name, dataset, file);
    if (route(name, path) != SCR_SUCCESS)
        return 0;
    die_at("route", number);
    /* Whoever comes first makes a shared file; nobody empties it. */
    if (o.shared && (out = fopen(path, "ab")) != NULL)
        fclose(out);
    if ((out = fopen(path, o.shared ? "r+b" : "wb")) == NULL || fseek(out, place_of(file), SEEK_SET) != 0)
        return 0;
    data = contents(dataset, file, (uint64_t)o.salt + (uint64_t)number, bytes);
    good = fwrite(data, 1, (size_t)bytes / 2, out) == (size_t)bytes / 2;
    if (rank == o.kill_rank && strcmp(o.kill_at, "write") == 0)
        fflush(out);
    die_at("write", number);
    good = good && fwrite(data + bytes / 2, 1, (size_t)(bytes - bytes / 2), out) == (size_t)(bytes - bytes / 2);
    free(data);
    return fclose(out) == 0 && good;
}

static void tell_codes(const char *name, int code)
{
    int *codes = calloc((size_t)ranks, sizeof *codes);

    MPI_Gather(&code, 1, MPI_INT, codes, 1, MPI_INT, 0, comm);
    if (rank == 0) {
        printf("CODES %s", name);
        for (int r = 0; r < ranks; r++)
            printf(" %d", codes[r]);
        printf("\n");
    }
    free(codes);
}

static void write_dataset(int number)
{
    const int flags = SCR_FLAG_CHECKPOINT | (o.output ? SCR_FLAG_OUTPUT : SCR_FLAG_NONE);
    char name[64];
    int valid = 1, code;

    snprintf(name, sizeof name, "ckpt.%d", o.same_name ? 1 : number);
    code = SCR_Start_output(o.unnamed ? NULL : name, flags);
    if (code != SCR_SUCCESS) {
        if (rank == 0)
            tell("START %s %d\n", name, code);
        return;
    }
    die_at("start", number);
    run_at("start", number);
    for (int file = 0; file < files_of_rank(); file++)
        valid = write_file(name, number, file) && valid;
    if (rank == o.invalid_rank && number == o.invalid_dataset)
        valid = 0;
    die_at("complete", number);
    run_at("complete", number);
    set_alarm(number);
    code = SCR_Complete_output(valid);
    if (rank == 0)
        tell("COMPLETE %s %d\n", name, code);
    if (o.codes)
        tell_codes(name, code);
    die_at("after", number);
    if (number == o.meet) {
        MPI_Barrier(MPI_COMM_WORLD);
        die_at("met", number);
    }
}

/* ---- Reading ---- */

static int bad(const char *name, const char *what)
{
    printf("BAD %d %s %s\n", rank, name, what);
    return 0;
}

/* Compares one file with what was written; takes the salt from the first file that has one. */
static int check_file(const char *dataset, int file, int64_t *salt)
{
    char name[SCR_MAX_FILENAME + 64], path[SCR_MAX_FILENAME];
    const int64_t bytes = bytes_of(file);
    unsigned char *data, *expected;
    struct header h = {0, 0};
    size_t found;
    FILE *in;
    int good;

    file_name(name, sizeof name, dataset, file);
    if (route(name, path) != SCR_SUCCESS)
        return bad(name, "is not there");
    if ((in = fopen(path, "rb")) == NULL)
        return bad(name, "cannot be opened");
    if ((data = malloc((size_t)bytes + 1)) == NULL)
        MPI_Abort(MPI_COMM_WORLD, 3);
    fseek(in, place_of(file), SEEK_SET);
    found = fread(data, 1, (size_t)bytes + (o.shared ? 0 : 1), in);
    fclose(in);
    if (found != (size_t)bytes) {
        free(data);
        return bad(name, "has another size");
    }
    if (bytes > 0) {
        memcpy(&h, data, sizeof h);
        if (*salt >= 0 && (uint64_t)*salt != h.salt) {
            free(data);
            return bad(name, "is of another dataset than the files before it");
        }
        *salt = (int64_t)h.salt;
        if (part >= 0 && *salt / SALTS_OF_A_PART != part) {
            free(data);
            return bad(name, "is of another part of the job");
        }
    }
    expected = contents(dataset, file, h.salt, bytes);
    good = memcmp(data, expected, (size_t)bytes) == 0;
    free(data);
    free(expected);
    return good ? 1 : bad(name, "has other bytes");
}

/* All ranks must have read files of one dataset: one salt. */
static int same_salt(int64_t salt)
{
    int64_t low = salt < 0 ? INT64_MAX : salt, high = salt, lowest, highest;

    MPI_Allreduce(&low, &lowest, 1, MPI_INT64_T, MPI_MIN, comm);
    MPI_Allreduce(&high, &highest, 1, MPI_INT64_T, MPI_MAX, comm);
    return highest < 0 || lowest == highest;
}

/* Gives the number of the dataset that the job has restarted from, or 0. */
static int restart(void)
{
    char name[SCR_MAX_FILENAME] = "", again[SCR_MAX_FILENAME] = "";
    int have = 0, good;
    int64_t salt;

    for (int attempt = 0; SCR_Have_restart(&have, name) == SCR_SUCCESS && have; attempt++) {
        salt = -1;
        good = 1;
        if (SCR_Start_restart(again) != SCR_SUCCESS)
            return bad(name, "cannot be started");
        if (strcmp(name, again) != 0)
            good = bad(again, "is not what SCR_Have_restart promised");
        for (int file = 0; file < files_of_rank(); file++)
            good = check_file(name, file, &salt) && good;
        if (!same_salt(salt))
            good = bad(name, "is mixed from several datasets");
        if (rank == o.reject_rank && attempt < o.reject)
            good = 0;
        if (SCR_Complete_restart(good) == SCR_SUCCESS) {
            if (rank == 0)
                tell("RESTARTED %s\n", name);
            return o.same_name ? 1 : atoi(name + strcspn(name, "0123456789"));
        }
        if (rank == 0)
            tell("REFUSED %s\n", name);
        if (attempt == 1000)
            return bad(name, "comes again for ever");
    }
    if (rank == 0)
        tell("FRESH\n");
    return 0;
}

/* ---- Options ---- */

static void parse(int argc, char **argv)
{
    const struct { const char *name; int *value; } numbers[] = {
        {"--datasets", &o.datasets},         {"--files", &o.files},               {"--shared", &o.shared},
        {"--size", &o.size},                 {"--uneven", &o.uneven},
        {"--empty-rank", &o.empty_rank},     {"--folders", &o.folders},
        {"--salt", &o.salt},                 {"--output", &o.output},
        {"--unnamed", &o.unnamed},           {"--same-name", &o.same_name},
        {"--invalid-rank", &o.invalid_rank}, {"--invalid-dataset", &o.invalid_dataset},
        {"--reject-rank", &o.reject_rank},   {"--reject", &o.reject},
        {"--kill-rank", &o.kill_rank},       {"--kill-dataset", &o.kill_dataset},
        {"--no-finalize", &o.no_finalize},   {"--read-only", &o.read_only},
        {"--parts", &o.parts},               {"--meet", &o.meet},
        {"--kill-part", &o.kill_part},       {"--writers", &o.writers},
        {"--coupled", &o.coupled},           {"--sessions", &o.sessions},           {"--world", &o.world},
        {"--codes", &o.codes},               {"--at-exit", &o.at_exit},           {"--thread", &o.thread},
        {"--needed", &o.needed},             {"--dear", &o.dear},
    };
    const size_t count = sizeof numbers / sizeof numbers[0];

    for (int i = 1, runs = 0; i < argc; i += 2) {
        size_t n = 0;
        while (n < count && strcmp(argv[i], numbers[n].name) != 0)
            n++;
        if (i + 1 < argc && n < count) {
            *numbers[n].value = atoi(argv[i + 1]);
        } else if (i + 1 < argc && strcmp(argv[i], "--kill-at") == 0) {
            o.kill_at = argv[i + 1];
        } else if (i + 1 < argc && strcmp(argv[i], "--run") == 0 && runs < 4) {
            commands[runs++] = argv[i + 1];
        } else {
            fprintf(stderr, "ckpt_test: wrong option %s\n", argv[i]);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
    }
}

static void finalize_at_exit(void)
{
    SCR_Finalize();
}

/* The ranks that have a session together, or MPI_COMM_NULL for those that have none. */
static void find_comm(void)
{
    const int color = o.parts > 0 ? rank % o.parts : o.writers > 0 && rank >= o.writers ? MPI_UNDEFINED : 1;

    if (o.parts == 0 && o.writers == 0 && !o.coupled)
        return;
    MPI_Comm_split(MPI_COMM_WORLD, color, rank, &comm);
    if (comm == MPI_COMM_NULL)
        return;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    if (o.parts == 0)
        return;
    part = color;
    o.salt += SALTS_OF_A_PART * part;
}

static int begin(void)
{
    if (part >= 0)
        SCR_Configf("SCR_PREFIX=part.%d", part);
    return comm == MPI_COMM_WORLD && !o.world ? SCR_Init() : SCR_Init_comm(comm);
}

/* Computes until a checkpoint is due. */
static void compute(void)
{
    for (int needed = 0; !needed; SCR_Need_checkpoint(&needed))
        nanosleep(&(struct timespec){0, 10 * 1000 * 1000L}, NULL);
}

/* Whether there was a session. */
static int session(void)
{
    int last, stop = 0;

    if (begin() != SCR_SUCCESS) {
        fprintf(stderr, "ckpt_test: SCR_Init failed\n");
        if (o.at_exit)
            return 0;
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    last = restart();
    for (int number = last + 1; number <= last + o.datasets && !o.read_only && !stop; number++) {
        if (number == o.dear)
            o.size *= LARGER;
        if (o.needed)
            compute();
        write_dataset(number);
        SCR_Should_exit(&stop);
    }
    if (stop && rank == 0)
        printf("EXIT\n");
    if (o.needed)
        SCR_Need_checkpoint(&stop);
    if (!o.no_finalize && SCR_Finalize() != SCR_SUCCESS)
        printf("BAD %d - SCR_Finalize failed\n", rank);
    return 1;
}

int main(int argc, char **argv)
{
    int world_rank;

    MPI_Init(&argc, &argv);
    comm = MPI_COMM_WORLD;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    world_rank = rank;
    setvbuf(stdout, NULL, _IOLBF, 0);
    parse(argc, argv);
    if (o.at_exit)
        atexit(finalize_at_exit);
    find_comm();
    for (int i = 0; i < o.sessions && comm != MPI_COMM_NULL; i++)
        if (!session())
            return MPI_Finalize();
    MPI_Finalize();
    if (world_rank == 0)
        printf("DONE\n");
    return 0;
}
