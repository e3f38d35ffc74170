/* What protecting costs on this machine at the least when it is done the plain way: read a block, send it on, receive one, add
 * it, write. No records, no checksums, no agreement, no overlap. Beside its figures those of scr say something on any machine.
 *
 * plain FOLDER BYTES COUNT  in COUNT rounds each rank writes BYTES to a file below FOLDER, and protects them as PARTNER, XOR
 *                           and RS with two losses do; what the round before has left is removed, as an old checkpoint is.
 *                           Then it only reads and writes what each of them has to.
 *
 * Blocks have 128 KiB, the default of SCR_MPI_BUF_SIZE in the user's guide. XOR is the pipelined reduce-scatter of the v1.1
 * manual, section 7.3.1; RS sends every block of data to both owners of parity, who multiply by table. */
#include <fcntl.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 128 << 10, LOSSES = 2, NAME = 4096 };

static int rank, ranks;
static uint8_t own[BLOCK], incoming[LOSSES][BLOCK], sum[LOSSES][BLOCK];
static uint8_t times[256][256];

static void check(int ok, const char *what)
{
    if (!ok) {
        perror(what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* The product table of GF(2^8) with the polynomial 0x11D. */
static void fill_table(void)
{
    for (int a = 0; a < 256; a++)
        for (int b = 0; b < 256; b++) {
            int product = 0;
            for (int bit = 7; bit >= 0; bit--) {
                product <<= 1;
                if (product & 0x100)
                    product ^= 0x11D;
                if (b >> bit & 1)
                    product ^= a;
            }
            times[a][b] = (uint8_t)product;
        }
}

static int ahead(int by) { return (rank + by) % ranks; }
static int behind(int by) { return (rank + ranks - by) % ranks; }

static void trade(const uint8_t *sent, int to, uint8_t *received, int from, size_t bytes)
{
    MPI_Sendrecv(sent, (int)bytes, MPI_BYTE, to, 0, received, (int)bytes, MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* What lies past the end of the file counts as zeros. */
static void read_block(int file, uint8_t *block, size_t bytes, size_t at)
{
    ssize_t got = pread(file, block, bytes, (off_t)at);
    check(got >= 0, "read");
    memset(block + got, 0, bytes - (size_t)got);
}

static void write_block(int file, const uint8_t *block, size_t bytes, size_t at)
{
    check(pwrite(file, block, bytes, (off_t)at) == (ssize_t)bytes, "write");
}

static void add(uint8_t *to, const uint8_t *block, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        to[i] ^= block[i];
}

static void add_scaled(uint8_t *to, const uint8_t *block, uint8_t factor, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        to[i] ^= times[factor][block[i]];
}

static void partner(int data, int redundancy, size_t at, size_t bytes, size_t chunk)
{
    (void)chunk;
    read_block(data, own, bytes, at);
    trade(own, ahead(1), incoming[0], behind(1), bytes);
    write_block(redundancy, incoming[0], bytes, at);
}

/* Sums travel round the ring; each rank adds its own chunk to what passes, and keeps the one that comes to it last. */
static void xor(int data, int redundancy, size_t at, size_t bytes, size_t chunk)
{
    memset(sum[0], 0, bytes);
    for (int step = 0; step < ranks - 1; step++) {
        read_block(data, own, bytes, (size_t)step * chunk + at);
        add(sum[0], own, bytes);
        trade(sum[0], ahead(1), incoming[0], behind(1), bytes);
        memcpy(sum[0], incoming[0], bytes);
    }
    write_block(redundancy, sum[0], bytes, at);
}

/* Data of the chunk `step` goes to the owners of both rows of parity that it belongs to. */
static void rs(int data, int redundancy, size_t at, size_t bytes, size_t chunk)
{
    memset(sum, 0, sizeof sum);
    for (int step = 0; step < ranks - LOSSES; step++) {
        read_block(data, own, bytes, (size_t)step * chunk + at);
        for (int row = 0; row < LOSSES; row++) {
            trade(own, ahead(step + row + 1), incoming[row], behind(step + row + 1), bytes);
            add_scaled(sum[row], incoming[row], (uint8_t)(1 + row * (step + 1)), bytes);
        }
    }
    for (int row = 0; row < LOSSES; row++)
        write_block(redundancy, sum[row], bytes, (size_t)row * chunk + at);
}

struct scheme {
    const char *name;
    void (*protect)(int data, int redundancy, size_t at, size_t bytes, size_t chunk);
    int losses;
};

static void name_files(char data[NAME], char redundancy[NAME], const char *folder, int round)
{
    snprintf(data, NAME, "%s/data.%d.%d", folder, rank, round);
    snprintf(redundancy, NAME, "%s/redundancy.%d.%d", folder, rank, round);
}

static void write_data(const char *path, size_t bytes)
{
    uint8_t *content = malloc(bytes);
    check(content != NULL, "memory");
    memset(content, rank + 1, bytes);
    FILE *file = fopen(path, "w");
    check(file && fwrite(content, 1, bytes, file) == bytes && fclose(file) == 0, path);
    free(content);
}

static size_t chunk_of(const struct scheme *scheme, size_t bytes)
{
    size_t parts = (size_t)(scheme->protect == partner ? 1 : ranks - scheme->losses);
    return (bytes + parts - 1) / parts;
}

static double protect(const struct scheme *scheme, const char *folder, size_t bytes, int round)
{
    char data[NAME], redundancy[NAME], old_data[NAME], old_redundancy[NAME];
    name_files(data, redundancy, folder, round);
    name_files(old_data, old_redundancy, folder, round - 1);
    write_data(data, bytes);
    size_t chunk = chunk_of(scheme, bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    double began = MPI_Wtime();
    int from = open(data, O_RDONLY), to = open(redundancy, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    check(from >= 0 && to >= 0, redundancy);
    for (size_t at = 0; at < chunk; at += BLOCK)
        scheme->protect(from, to, at, chunk - at < BLOCK ? chunk - at : BLOCK, chunk);
    check(close(from) == 0 && close(to) == 0, redundancy);
    if (round > 0)
        check(unlink(old_data) == 0 && unlink(old_redundancy) == 0, old_data);
    return MPI_Wtime() - began;
}

/* What no way of protecting can do without: all data is read, and as much is written as the scheme stores, over the memory of an
 * older file, which is the cheapest. Nothing is sent, nothing is computed, and nobody waits for anybody. */
static double read_and_write(const struct scheme *scheme, const char *folder, size_t bytes, int round)
{
    char data[NAME], redundancy[NAME];
    name_files(data, redundancy, folder, 0);
    write_data(data, bytes);
    size_t stored = chunk_of(scheme, bytes) * (size_t)scheme->losses;
    (void)round;
    MPI_Barrier(MPI_COMM_WORLD);
    double began = MPI_Wtime();
    int from = open(data, O_RDONLY), to = open(redundancy, O_CREAT | O_WRONLY, 0600);
    check(from >= 0 && to >= 0, redundancy);
    for (size_t at = 0; at < bytes; at += BLOCK) {
        size_t length = bytes - at < BLOCK ? bytes - at : BLOCK;
        read_block(from, own, length, at);
        if (at < stored)
            write_block(to, own, stored - at < length ? stored - at : length, at);
    }
    check(close(from) == 0 && close(to) == 0, redundancy);
    return MPI_Wtime() - began;
}

/* Does it in `count` rounds and prints the time of each; `way` is its name in the lines. Removes its files. */
static void measure(const struct scheme *scheme, double (*doing)(const struct scheme *, const char *, size_t, int), const char *way,
                    const char *folder, size_t bytes, int count)
{
    for (int round = 0; round < count; round++) {
        double seconds = doing(scheme, folder, bytes, round), slowest;
        MPI_Reduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (rank == 0)
            printf("phase=%s,%s bytes=%.0f secs=%.9f \n", scheme->name, way, (double)bytes * ranks, slowest);
    }
    char data[NAME], redundancy[NAME];
    name_files(data, redundancy, folder, doing == protect ? count - 1 : 0);
    check(count == 0 || (unlink(data) == 0 && unlink(redundancy) == 0), data);
}

int main(int argc, char **argv)
{
    static const struct scheme schemes[] = {{"PARTNER", partner, 1}, {"XOR", xor, 1}, {"RS", rs, LOSSES}};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    check(argc == 4 && ranks > LOSSES, "plain FOLDER BYTES COUNT, and more than two ranks");
    size_t bytes = (size_t)strtoull(argv[2], NULL, 10);
    int count = atoi(argv[3]);
    fill_table();
    for (size_t s = 0; s < sizeof schemes / sizeof *schemes; s++) {
        measure(&schemes[s], protect, "plain", argv[1], bytes, count);
        measure(&schemes[s], read_and_write, "least", argv[1], bytes, count);
    }
    MPI_Finalize();
    return 0;
}
