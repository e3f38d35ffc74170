/* Measures a restart with any number of ranks, from SCR_Init until SCR_Complete_restart has returned.
 *
 * others write BYTES      writes one checkpoint of BYTES per rank, and ends as after a failure
 * others read NODES       restarts from it. Each rank reads its share of the bytes, in the order of the ranks that wrote them, but
 *                         those of the node that is NODES further on: 0 for those of its own node */
#include <mpi.h>
#include <scr.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int rank, ranks;

static void check(int code)
{
    if (code != SCR_SUCCESS)
        MPI_Abort(MPI_COMM_WORLD, 1);
}

static void write_one(size_t bytes)
{
    char file[64], path[SCR_MAX_FILENAME];
    char *data = malloc(bytes + 1);
    for (size_t at = 0; at < bytes; at++)
        data[at] = (char)(at * 2654435761u >> 24 ^ (unsigned)rank);
    check(SCR_Start_output("bench", SCR_FLAG_CHECKPOINT));
    snprintf(file, sizeof file, "bench/rank_%d", rank);
    check(SCR_Route_file(file, path));
    FILE *out = fopen(path, "w");
    int good = out && fwrite(data, 1, bytes, out) == bytes && fclose(out) == 0;
    check(SCR_Complete_output(good));
    free(data);
}

/* Reads the part from `from` to `to`, as shares of the whole, of the file that a rank wrote. */
static void read_part(int writer, double from, double to)
{
    static char block[1 << 20];
    char file[64], path[SCR_MAX_FILENAME];
    struct stat status;
    snprintf(file, sizeof file, "bench/rank_%d", writer);
    check(SCR_Route_file(file, path));
    FILE *in = fopen(path, "r");
    if (!in || fstat(fileno(in), &status) != 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
    long left = (long)(status.st_size * to) - (long)(status.st_size * from);
    fseek(in, (long)(status.st_size * from), SEEK_SET);
    while (left > 0) {
        size_t many = left < (long)sizeof block ? (size_t)left : sizeof block;
        if (fread(block, 1, many, in) != many)
            MPI_Abort(MPI_COMM_WORLD, 1);
        left -= (long)many;
    }
    fclose(in);
}

static void read_all(int nodes_on, int nodes)
{
    char name[SCR_MAX_FILENAME];
    int have = 0, writers = ranks;
    SCR_Have_restart(&have, name);
    check(have ? SCR_SUCCESS : !SCR_SUCCESS);
    check(SCR_Start_restart(name));
    check(SCR_Restart_ranks(&writers));
    int on = nodes ? nodes_on * (ranks / nodes) : 0, place = (rank + on) % ranks;
    double from = (double)place * writers / ranks, to = (double)(place + 1) * writers / ranks;
    for (int writer = (int)from; writer < to; writer++)
        read_part(writer, from > writer ? from - writer : 0, to < writer + 1 ? to - writer : 1);
    check(SCR_Complete_restart(1));
}

int main(int argc, char *argv[])
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int writes = argc > 1 && strcmp(argv[1], "write") == 0;
    MPI_Barrier(MPI_COMM_WORLD);
    double began = MPI_Wtime();
    check(SCR_Init());
    if (writes)
        write_one(argc > 2 ? strtoull(argv[2], NULL, 10) : 64u << 20);
    else
        read_all(argc > 2 ? atoi(argv[2]) : 0, argc > 3 ? atoi(argv[3]) : 1);
    double own = MPI_Wtime() - began, most = 0;
    MPI_Reduce(&own, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("seconds=%.6f\n", most);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
