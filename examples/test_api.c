/* test_api: writes and checks datasets through every call of scr.h, as sites do to try an installation.
 *
 * At the start it restarts from the newest checkpoint and compares every byte. Then it writes datasets, and prints how fast.
 * Compiled with -DFILES=3 as test_api_multiple, each rank writes three files of different sizes. The exit status is 0 if every
 * byte was right and every call did what it should.
 *
 *   mpicc test_api.c -o test_api -lscr
 *   mpirun -n 4 ./test_api --size 1M --times 5
 */
#define _POSIX_C_SOURCE 200809L
#include <getopt.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "scr.h"

#ifndef FILES
#define FILES 1
#endif

static struct {
    long size;           /* bytes of the first file of rank 0; others differ a little */
    int times;           /* datasets to write */
    int seconds;         /* pause after each */
    const char *path;    /* folder of the files, below the prefix directory */
    int flush;           /* SCR_FLUSH, or -1 to leave it */
    int output;          /* every so many datasets are output as well; 0 for none */
    const char *current; /* restart from this dataset */
    int shared_file;     /* all ranks write one file */
} options = {.size = 512 * 1024, .times = 5, .path = "", .flush = -1};

static int rank, ranks, failures;

static void fail(const char *what, const char *detail)
{
    fprintf(stderr, "test_api: rank %d: %s %s\n", rank, what, detail);
    failures++;
}

static void expect(int code, const char *call)
{
    if (code != SCR_SUCCESS)
        fail(call, SCR_Last_error());
}

/* ---- Files ---- */

/* Byte `at` of a file: it depends on the dataset, the rank, the file and the place. */
static unsigned char byte_of(int dataset, int writer, int file, long at)
{
    return (unsigned char)(dataset * 131 + writer * 31 + file * 17 + at * 7 + (at >> 8));
}

static long size_of(int writer, int file)
{
    return options.size / (file + 1) + writer;
}

static void name_of(char *name, size_t room, int dataset, int file)
{
    const char *slash = options.path[0] != '\0' ? "/" : "";

    if (options.shared_file)
        snprintf(name, room, "%s%stimestep.%d/shared_%d.ckpt", options.path, slash, dataset, file);
    else
        snprintf(name, room, "%s%stimestep.%d/rank_%d_%d.ckpt", options.path, slash, dataset, rank, file);
}

/* The place where this rank's bytes begin: in a shared file, after those of the ranks before it. */
static long place_of(int file)
{
    long place = 0;

    for (int before = 0; options.shared_file && before < rank; before++)
        place += size_of(before, file);
    return place;
}

static int write_file(const char *path, int dataset, int file)
{
    const long size = size_of(rank, file);
    unsigned char *bytes = malloc((size_t)size);
    int good;
    FILE *out;

    if (bytes == NULL)
        return 0;
    for (long at = 0; at < size; at++)
        bytes[at] = byte_of(dataset, rank, file, at);
    /* One rank makes a shared file; the others wait for it. */
    out = options.shared_file && rank > 0 ? NULL : fopen(path, "wb");
    if (options.shared_file) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank > 0)
            out = fopen(path, "r+b");
    }
    good = out != NULL && fseek(out, place_of(file), SEEK_SET) == 0;
    good = good && fwrite(bytes, 1, (size_t)size, out) == (size_t)size;
    good = (out == NULL || fclose(out) == 0) && good;
    free(bytes);
    return good;
}

/* Whether the file holds the very bytes that were written. */
static int check_file(const char *path, int dataset, int file)
{
    const long size = size_of(rank, file);
    FILE *in = fopen(path, "rb");
    int good = in != NULL && fseek(in, place_of(file), SEEK_SET) == 0;

    for (long at = 0; good && at < size; at++)
        good = fgetc(in) == byte_of(dataset, rank, file, at);
    if (good && !options.shared_file)
        good = fgetc(in) == EOF;
    if (in != NULL)
        fclose(in);
    return good;
}

/* ---- Datasets ---- */

/* Restarts from the newest checkpoint that every rank can read; gives its number, or 0. */
static int restart(void)
{
    char name[SCR_MAX_FILENAME], file[SCR_MAX_FILENAME], path[SCR_MAX_FILENAME];
    int have = 0, dataset = 0;

    while (SCR_Have_restart(&have, name) == SCR_SUCCESS && have) {
        int valid = sscanf(name, "timestep.%d", &dataset) == 1;

        expect(SCR_Start_restart(name), "SCR_Start_restart");
        for (int i = 0; i < FILES && valid; i++) {
            name_of(file, sizeof file, dataset, i);
            valid = SCR_Route_file(file, path) == SCR_SUCCESS && check_file(path, dataset, i);
            if (!valid)
                fail("wrong bytes in", path);
        }
        if (SCR_Complete_restart(valid) == SCR_SUCCESS) {
            if (rank == 0)
                printf("Restarted from %s.\n", name);
            return dataset;
        }
    }
    if (rank == 0)
        printf("No checkpoint to restart from.\n");
    return 0;
}

static void write_dataset(int dataset)
{
    char name[SCR_MAX_FILENAME], file[SCR_MAX_FILENAME], path[SCR_MAX_FILENAME];
    const int is_output = options.output > 0 && dataset % options.output == 0;
    int valid = 1, outcome;

    snprintf(name, sizeof name, "timestep.%d", dataset);
    expect(SCR_Start_output(name, SCR_FLAG_CHECKPOINT | (is_output ? SCR_FLAG_OUTPUT : 0)), "SCR_Start_output");
    for (int i = 0; i < FILES; i++) {
        name_of(file, sizeof file, dataset, i);
        if (SCR_Route_file(file, path) != SCR_SUCCESS)
            strcpy(path, "/nonexistent/file");
        valid &= write_file(path, dataset, i);
    }
    if (!valid)
        fail("cannot write", name);
    outcome = SCR_Complete_output(valid);
    expect(outcome, "SCR_Complete_output");
    if (rank == 0 && outcome == SCR_SUCCESS)
        printf("Completed %s.\n", name);
}

/* Writes the datasets after `first`, and prints how fast. */
static void write_datasets(int first)
{
    long bytes = 0, sum;
    double began = MPI_Wtime(), spent = 0, most;
    int stop = 0, dataset = first;

    while (dataset < first + options.times && !stop) {
        began = MPI_Wtime();
        write_dataset(++dataset);
        spent += MPI_Wtime() - began;
        for (int i = 0; i < FILES; i++)
            bytes += size_of(rank, i);
        expect(SCR_Should_exit(&stop), "SCR_Should_exit");
        if (options.seconds > 0)
            nanosleep(&(struct timespec){.tv_sec = options.seconds}, NULL);
    }
    MPI_Reduce(&bytes, &sum, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Reduce(&spent, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0 && most > 0)
        printf("Wrote %d datasets, %ld bytes, in %.6f s: %.2f MB/s.\n", dataset - first, sum, most,
               (double)sum / most / 1e6);
}

/* ---- Command line ---- */

static void usage(int status)
{
    if (rank == 0)
        fprintf(status == 0 ? stdout : stderr,
                "usage: test_api [OPTION]... [SIZE TIMES SECONDS]\n"
                "  -s, --size BYTES        bytes of each file, with K, M or G (512K)\n"
                "  -t, --times N           datasets to write (5)\n"
                "  -z, --seconds N         pause after each dataset (0)\n"
                "  -p, --path FOLDER       folder of the files, below the prefix directory\n"
                "  -f, --flush N           set SCR_FLUSH\n"
                "  -o, --output N          every N-th dataset is output as well\n"
                "  -a, --config-api LINE   pass this line to SCR_Config; may be repeated\n"
                "  -c, --conf-file FILE    read the settings in this file (SCR_CONF_FILE)\n"
                "  -x, --current NAME      restart from this dataset (SCR_Current)\n"
                "      --shared-file       all ranks write one file\n"
                "      --global-store      keep the cache in a store that all ranks see, in ./cache\n"
                "  -h, --help              show this list\n");
    MPI_Finalize();
    exit(status);
}

static long bytes_in(const char *text)
{
    char *end;
    const long number = strtol(text, &end, 10);
    const char *units = "KMG";
    const char *unit = *end != '\0' ? strchr(units, *end) : NULL;

    if (end == text || number < 0 || (*end != '\0' && (unit == NULL || end[1] != '\0')))
        usage(2);
    return unit == NULL ? number : number << (10 * (unit - units + 1));
}

static void configure(const char *line)
{
    if (SCR_Config(line) != NULL)
        fail("SCR_Config gave an answer to", line);
}

static void use_global_store(void)
{
    char here[SCR_MAX_FILENAME - 32];

    if (getcwd(here, sizeof here) == NULL)
        return;
    configure("SCR_COPY_TYPE=FILE");
    configure("SCR_CACHE_BYPASS=0");
    SCR_Configf("STORE=%s/cache GROUP=WORLD COUNT=2", here);
    SCR_Configf("CKPT=0 INTERVAL=1 GROUP=NODE STORE=%s/cache TYPE=SINGLE", here);
}

static void parse(int argc, char **argv)
{
    enum { SHARED_FILE = 1000, GLOBAL_STORE };
    static const struct option names[] = {
        {"size", required_argument, NULL, 's'},      {"times", required_argument, NULL, 't'},
        {"seconds", required_argument, NULL, 'z'},   {"path", required_argument, NULL, 'p'},
        {"flush", required_argument, NULL, 'f'},     {"output", required_argument, NULL, 'o'},
        {"config-api", required_argument, NULL, 'a'}, {"conf-file", required_argument, NULL, 'c'},
        {"current", required_argument, NULL, 'x'},   {"shared-file", no_argument, NULL, SHARED_FILE},
        {"global-store", no_argument, NULL, GLOBAL_STORE}, {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int option;

    while ((option = getopt_long(argc, argv, "s:t:z:p:f:o:a:c:x:h", names, NULL)) != -1) {
        switch (option) {
        case 's': options.size = bytes_in(optarg); break;
        case 't': options.times = (int)bytes_in(optarg); break;
        case 'z': options.seconds = (int)bytes_in(optarg); break;
        case 'p': options.path = optarg; break;
        case 'f': options.flush = (int)bytes_in(optarg); break;
        case 'o': options.output = (int)bytes_in(optarg); break;
        case 'a': configure(optarg); break;
        case 'c': SCR_Configf("SCR_CONF_FILE=%s", optarg); break;
        case 'x': options.current = optarg; break;
        case SHARED_FILE: options.shared_file = 1; break;
        case GLOBAL_STORE: use_global_store(); break;
        default: usage(option == 'h' ? 0 : 2);
        }
    }
    if (optind + 3 == argc) {
        options.size = bytes_in(argv[optind]);
        options.times = (int)bytes_in(argv[optind + 1]);
        options.seconds = (int)bytes_in(argv[optind + 2]);
    } else if (optind != argc) {
        usage(2);
    }
    if (options.flush >= 0)
        SCR_Configf("SCR_FLUSH=%d", options.flush);
}

int main(int argc, char **argv)
{
    int all;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    setvbuf(stdout, NULL, _IOLBF, 0);
    parse(argc, argv);
    if (SCR_Init() != SCR_SUCCESS) {
        MPI_Finalize();
        return 1;
    }
    if (options.current != NULL)
        expect(SCR_Current(options.current), "SCR_Current");
    write_datasets(restart());
    expect(SCR_Finalize(), "SCR_Finalize");
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf(all == 0 ? "All was right.\n" : "%d failures.\n", all);
    MPI_Finalize();
    return all == 0 ? 0 : 1;
}
