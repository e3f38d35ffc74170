/* at_call: preloaded into a job, it makes something happen at a chosen call of the system below the prefix directory.
 *
 *   AT_CALL  the call: rename, fsync, write, read or unlink (fdatasync counts as fsync)
 *   AT_BELOW  another folder than the prefix directory
 *   AT_THREAD  the name of the thread that makes the call; any by default
 *   AT_PATH  a text in the path, or in either of two
 *   AT_NTH   the how manyeth of these calls of the rank; 1 by default
 *   AT_RANK  on which rank; all by default. A process that a rank has started counts for itself
 *   AT_DO    kill: the process dies before the call. hide: the prefix directory gets another name. wait:PATH: the call waits
 *            until there is such a file. A number: from here on these calls fail below the prefix directory, with that errno.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static atomic_int met, failing;

static int is_this_rank(void)
{
    const char *wanted = getenv("AT_RANK");
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    rank = rank ? rank : getenv("PMI_RANK");
    return rank && (!wanted || strcmp(wanted, rank) == 0);
}

static int is_this_thread(void)
{
    const char *wanted = getenv("AT_THREAD");
    char name[16] = "";
    return !wanted || (prctl(PR_GET_NAME, name) == 0 && strcmp(wanted, name) == 0);
}

static void hide(const char *prefix)
{
    int (*real)(const char *, const char *) = (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
    char hidden[4096];
    snprintf(hidden, sizeof hidden, "%s.hidden", prefix);
    real(prefix, hidden);
}

static void wait_for(const char *path)
{
    const struct timespec pause = {0, 10000000};
    while (access(path, F_OK) != 0)
        nanosleep(&pause, NULL);
}

/* Gives 0 where the call may go on, or else the errno that it fails with. */
static int at(const char *call, const char *path, const char *other)
{
    const char *prefix = getenv("SCR_PREFIX"), *wanted = getenv("AT_CALL"), *text = getenv("AT_PATH");
    const char *nth = getenv("AT_NTH"), *act = getenv("AT_DO"), *other_folder = getenv("AT_BELOW");
    const char *below = other_folder ? other_folder : prefix;

    if (!prefix || !wanted || !text || !act || strncmp(path, below, strlen(below)) != 0)
        return 0;
    if (!is_this_rank() || !is_this_thread())
        return 0;
    if (strcmp(call, wanted) == 0 && (strstr(path, text) || strstr(other, text)) &&
        atomic_fetch_add(&met, 1) + 1 == (nth ? atoi(nth) : 1)) {
        if (strcmp(act, "kill") == 0)
            kill(getpid(), SIGKILL);
        else if (strcmp(act, "hide") == 0)
            hide(prefix);
        else if (strncmp(act, "wait:", 5) == 0)
            wait_for(act + 5);
        else
            atomic_store(&failing, atoi(act));
    }
    return atomic_load(&failing);
}

/* A name in an open folder as a path; an empty one means the open file itself. */
typedef struct {
    char text[8192];
} Path;

static Path path_of(int file, const char *name)
{
    char link[64];
    Path path;
    if (name[0] == '/' || file == AT_FDCWD) {
        snprintf(path.text, sizeof path.text, "%s", name);
        return path;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path.text, 4096);
    length = length > 0 ? length : 0;
    snprintf(path.text + length, sizeof path.text - length, name[0] ? "/%s" : "%s", name);
    return path;
}

static int at_file(const char *call, int file)
{
    return at(call, path_of(file, "").text, "");
}

#define REAL(type, name, ...) ((type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))
#define FAIL_IF(why)                                                                                                   \
    do {                                                                                                               \
        int error = (why);                                                                                             \
        if (error) {                                                                                                   \
            errno = error;                                                                                             \
            return -1;                                                                                                 \
        }                                                                                                              \
    } while (0)

int rename(const char *from, const char *to)
{
    FAIL_IF(at("rename", from, to));
    return REAL(int, "rename", const char *, const char *)(from, to);
}

int unlink(const char *path)
{
    FAIL_IF(at("unlink", path, ""));
    return REAL(int, "unlink", const char *)(path);
}

int renameat(int old, const char *from, int new, const char *to)
{
    FAIL_IF(at("rename", path_of(old, from).text, path_of(new, to).text));
    return REAL(int, "renameat", int, const char *, int, const char *)(old, from, new, to);
}

int unlinkat(int folder, const char *name, int flags)
{
    FAIL_IF(at("unlink", path_of(folder, name).text, ""));
    return REAL(int, "unlinkat", int, const char *, int)(folder, name, flags);
}

int fsync(int file)
{
    FAIL_IF(at_file("fsync", file));
    return REAL(int, "fsync", int)(file);
}

int fdatasync(int file)
{
    FAIL_IF(at_file("fsync", file));
    return REAL(int, "fdatasync", int)(file);
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t offset)
{
    FAIL_IF(at_file("write", file));
    return REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t)(file, bytes, count, offset);
}

ssize_t pread64(int file, void *bytes, size_t count, off64_t offset)
{
    FAIL_IF(at_file("read", file));
    return REAL(ssize_t, "pread64", int, void *, size_t, off64_t)(file, bytes, count, offset);
}
