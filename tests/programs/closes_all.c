/* An application that closes descriptors that it has not opened, and takes no notice of the errors that follow.

   closes_all PART           closes those whose links have PART in them, and ends the job
   closes_all PART FOLDER    opens files and folders of its own in FOLDER before it goes on, until they have the same numbers;
                             PART may be `new': all that were opened since before SCR_Init
   closes_all PART FOLDER LATER    waits before until a file is open whose link has LATER in it
   closes_all restore        restarts, and compares every byte */
#define _DEFAULT_SOURCE
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "scr.h"

enum { MOST = 1024, LENGTH = 3000001, OWN = 5000 };

static int rank;
static char bytes[LENGTH], there[LENGTH + 1];

static void fill(int step) {
    int at;
    for (at = 0; at < LENGTH; at++) bytes[at] = (char)(at * 7 + at / 251 + step * 31 + rank * 13);
}

static int has_bytes(const char *path) {
    FILE *in = fopen(path, "r");
    size_t count = in == NULL ? 0 : fread(there, 1, sizeof there, in);
    if (in != NULL) fclose(in);
    return count == LENGTH && memcmp(bytes, there, LENGTH) == 0;
}

static void checkpoint(int step) {
    char name[32], file[64], path[SCR_MAX_FILENAME];
    FILE *out;
    int valid;
    snprintf(name, sizeof name, "ckpt.%d", step);
    snprintf(file, sizeof file, "ckpt.%d/rank_%d", step, rank);
    printf("START %s %d\n", name, SCR_Start_output(name, SCR_FLAG_CHECKPOINT));
    valid = SCR_Route_file(file, path) == SCR_SUCCESS && (out = fopen(path, "w")) != NULL;
    if (valid) {
        fill(step);
        valid = fwrite(bytes, 1, LENGTH, out) == LENGTH;
        valid = fclose(out) == 0 && valid;
    }
    printf("COMPLETE %s %d\n", name, SCR_Complete_output(valid));
}

static int restore(void) {
    char name[SCR_MAX_FILENAME], file[SCR_MAX_FILENAME], path[SCR_MAX_FILENAME];
    int have = 0, step = 0, whole;
    if (SCR_Have_restart(&have, name) != SCR_SUCCESS || !have) return 7;
    if (SCR_Start_restart(name) != SCR_SUCCESS || sscanf(name, "ckpt.%d", &step) != 1) return 6;
    fill(step);
    snprintf(file, sizeof file, "ckpt.%d/rank_%d", step, rank);
    whole = SCR_Route_file(file, path) == SCR_SUCCESS && has_bytes(path);
    printf("RESTORED %s %d\n", name, whole);
    return SCR_Complete_restart(whole) == SCR_SUCCESS && whole ? 0 : 5;
}

/* Whether it is open, by number. */
typedef char Open[MOST];

static void look(Open open) {
    int fd;
    for (fd = 0; fd < MOST; fd++) open[fd] = fcntl(fd, F_GETFD) != -1;
}

/* Gives whether it has a link, and the link. */
static int link_of(int fd, char *target, size_t room) {
    char link[64];
    ssize_t length;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, target, room - 1);
    target[length > 0 ? length : 0] = '\0';
    return length > 0;
}

/* Since before SCR_Init. */
static int has_opened(const char *part, const Open before) {
    char target[4096];
    int fd;
    for (fd = 3; fd < MOST; fd++)
        if (!before[fd] && link_of(fd, target, sizeof target) && strstr(target, part) != NULL) return 1;
    return 0;
}

/* Those of MPI stay open. */
static int choose(const char *part, const Open before, int *chosen) {
    char target[4096];
    int fd, count = 0;
    for (fd = 3; fd < MOST; fd++) {
        if (!link_of(fd, target, sizeof target)) continue;
        if (strcmp(part, "new") == 0 ? !before[fd] : strstr(target, part) != NULL) {
            printf("CLOSES %d %s\n", fd, target);
            chosen[count++] = fd;
        }
    }
    return count;
}

/* What the application has opened under a number. */
struct own {
    int fd, is_folder;
    char path[512];
    struct stat status;
};

static struct own owned[MOST];

/* A folder where there was one, else a file: the calls that scr makes would work there. */
static void take(const char *folder, int fd, int was_folder, struct own *own) {
    char text[OWN];
    int opened;
    own->fd = fd;
    own->is_folder = was_folder;
    snprintf(own->path, sizeof own->path, "%s/%d.%d", folder, rank, fd);
    if (was_folder) {
        mkdir(own->path, 0700);
        opened = open(own->path, O_RDONLY | O_DIRECTORY);
    } else {
        opened = open(own->path, O_RDWR | O_CREAT | O_EXCL, 0600);
        memset(text, 'a' + fd % 26, sizeof text);
        if (opened >= 0 && write(opened, text, sizeof text) != (ssize_t)sizeof text) exit(4);
    }
    if (opened != fd && dup2(opened, fd) == fd) close(opened);
    if (fstat(fd, &own->status) != 0) exit(3);
}

static const char *harm_of(const struct own *own) {
    struct stat now;
    if (own->is_folder) {
        DIR *folder = opendir(own->path);
        struct dirent *entry;
        int count = 0;
        while (folder != NULL && (entry = readdir(folder)) != NULL) count++;
        if (folder != NULL) closedir(folder);
        if (count != 2) return "something is in it, or it is gone";
    } else {
        char text[OWN + 1];
        int at, file = open(own->path, O_RDWR);
        ssize_t length = read(file, text, sizeof text);
        int is_free = flock(file, LOCK_EX | LOCK_NB) == 0;
        close(file);
        if (length != OWN) return "it has another length";
        for (at = 0; at < OWN; at++)
            if (text[at] != 'a' + own->fd % 26) return "it has other bytes";
        if (!is_free) return "it is locked";
    }
    if (fstat(own->fd, &now) != 0) return "it was closed";
    if (now.st_ino != own->status.st_ino || now.st_dev != own->status.st_dev) return "it is another file";
    return now.st_mode != own->status.st_mode ? "it has other permissions" : NULL;
}

int main(int argc, char **argv) {
    int count, i, code, one = 1, sum, chosen[MOST], was_folder[MOST], harmed = 0;
    const char *harm;
    struct stat status;
    Open before;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    look(before);
    if (argc < 2 || SCR_Init() != SCR_SUCCESS) return 8;
    if (strcmp(argv[1], "restore") == 0) {
        code = restore();
        SCR_Finalize();
        MPI_Finalize();
        return code;
    }
    checkpoint(1);
    while (argc > 3 && !has_opened(argv[3], before)) usleep(1000);
    /* What one rank closes, the threads of the others may need to open theirs. */
    if (argc > 3) MPI_Barrier(MPI_COMM_WORLD);
    count = choose(argv[1], before, chosen);
    for (i = 0; i < count; i++) was_folder[i] = fstat(chosen[i], &status) == 0 && S_ISDIR(status.st_mode);
    for (i = 0; i < count; i++) close(chosen[i]);
    printf("CLOSED %d\n", count);
    for (i = 0; argc > 2 && i < count; i++) take(argv[2], chosen[i], was_folder[i], &owned[i]);
    checkpoint(2);
    checkpoint(3);
    code = SCR_Finalize();
    printf("FINALIZE %d\n", code);
    for (i = 0; argc > 2 && i < count; i++)
        if ((harm = harm_of(&owned[i])) != NULL) {
            printf("HARMED %s: %s\n", owned[i].path, harm);
            harmed++;
        }
    printf("HARMS %d\n", harmed);
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
