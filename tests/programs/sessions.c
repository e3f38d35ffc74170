/* sessions: one session after the other in each process, on different communicators, and calls of SCR_Init_comm that must fail.
 * Prints "FAIL what" where something is otherwise than it should be, and "DONE" at the end.
 */
#define _POSIX_C_SOURCE 200809L
#include <mpi.h>

#include "scr.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks, handled;
static jmp_buf back;

static void expect(int good, const char *what)
{
    if (!good)
        printf("FAIL %d %s\n", rank, what);
}

static void refused(int code, int kind, const char *what)
{
    if (code != kind)
        printf("FAIL %d %s returned %d\n", rank, what, code);
}

/* ---- Handlers of the application ---- */

/* As one that throws an exception: it does not return to where the error was. */
static void jump(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    (void)code;
    handled++;
    longjmp(back, 1);
}

/* A copy of an attribute that fails makes a duplicate of the communicator fail. */
static int fail_to_copy(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag)
{
    (void)comm;
    (void)key;
    (void)extra;
    (void)in;
    (void)out;
    *flag = 0;
    return MPI_ERR_OTHER;
}

/* An error in the library returns, and the handler is the application's again. */
static void errors_return(MPI_Comm comm)
{
    MPI_Errhandler handler;
    int key;

    MPI_Comm_create_errhandler(jump, &handler);
    MPI_Comm_set_errhandler(comm, handler);
    MPI_Comm_create_keyval(fail_to_copy, MPI_COMM_NULL_DELETE_FN, &key, NULL);
    MPI_Comm_set_attr(comm, key, NULL);
    if (setjmp(back) == 0)
        refused(SCR_Init_comm(comm), SCR_ERR_MPI, "Init_comm where a duplicate cannot be made");
    expect(handled == 0, "the application's handler ran inside the library");
    if (setjmp(back) == 0)
        MPI_Comm_call_errhandler(comm, MPI_ERR_OTHER);
    expect(handled == 1, "the application's handler is back");
    MPI_Comm_delete_attr(comm, key);
    MPI_Comm_free_keyval(&key);
    if (setjmp(back) == 0)
        expect(SCR_Init_comm(comm) == SCR_SUCCESS, "Init_comm under a handler that jumps");
    expect(SCR_Finalize() == SCR_SUCCESS, "Finalize under a handler that jumps");
    if (setjmp(back) == 0)
        MPI_Comm_call_errhandler(comm, MPI_ERR_OTHER);
    expect(handled == 2, "the application's handler is back after a session");
    MPI_Errhandler_free(&handler);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL);
}

static void wrong_communicators(void)
{
    MPI_Comm half, both;

    refused(SCR_Init_comm(MPI_COMM_NULL), SCR_ERR_ARGUMENT, "Init_comm(MPI_COMM_NULL)");
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank % 2 == 0 ? 1 : 0, 7, &both);
    refused(SCR_Init_comm(both), SCR_ERR_ARGUMENT, "Init_comm of an intercommunicator");
    MPI_Comm_free(&both);
    MPI_Comm_free(&half);
}

/* ---- Sessions ---- */

static int entries_of(const char *folder)
{
    DIR *list = opendir(folder);
    int count = 0;

    if (list == NULL)
        return 0;
    while (readdir(list) != NULL)
        count++;
    closedir(list);
    return count;
}

/* As many as after an earlier session, once threads that end have ended. */
static void as_many(const char *folder, int before)
{
    const double until = MPI_Wtime() + 20;
    int now;

    while ((now = entries_of(folder)) > before && MPI_Wtime() < until)
        ;
    if (now > before)
        printf("FAIL %d %s has %d entries, and had %d\n", rank, folder, now, before);
}

static int is_unset(const char *name)
{
    char *value = (char *)SCR_Config(name);
    const int unset = value == NULL;

    free(value);
    return unset;
}

static void checkpoint(const char *name, int number)
{
    char file[SCR_MAX_FILENAME], path[SCR_MAX_FILENAME];
    FILE *out;

    expect(SCR_Start_output(name, SCR_FLAG_CHECKPOINT) == SCR_SUCCESS, "Start_output");
    snprintf(file, sizeof file, "%s/rank_%d", name, number);
    expect(SCR_Route_file(file, path) == SCR_SUCCESS, "Route_file");
    if ((out = fopen(path, "w")) != NULL) {
        fprintf(out, "%s of rank %d", name, number);
        fclose(out);
    }
    expect(SCR_Complete_output(1) == SCR_SUCCESS, "Complete_output");
}

static void restart(const char *expected, int number)
{
    char name[SCR_MAX_FILENAME] = "", file[2 * SCR_MAX_FILENAME], path[SCR_MAX_FILENAME], text[64] = "", wanted[64];
    int have = 7;
    FILE *in;

    expect(SCR_Have_restart(&have, name) == SCR_SUCCESS, "Have_restart");
    if (expected == NULL) {
        expect(have == 0, "nothing to restart from");
        return;
    }
    expect(have == 1 && strcmp(name, expected) == 0 && SCR_Start_restart(NULL) == SCR_SUCCESS, expected);
    snprintf(file, sizeof file, "%s/rank_%d", name, number);
    expect(SCR_Route_file(file, path) == SCR_SUCCESS, "Route_file at a restart");
    snprintf(wanted, sizeof wanted, "%s of rank %d", expected, number);
    if ((in = fopen(path, "r")) != NULL) {
        expect(fgets(text, sizeof text, in) != NULL && strcmp(text, wanted) == 0, "what was written");
        fclose(in);
    }
    expect(SCR_Complete_restart(1) == SCR_SUCCESS, "Complete_restart");
}

/* A session of each half, in turn with sessions of all; the communicator is freed meanwhile. */
static void of_half(const char *before, const char *name)
{
    MPI_Comm half;
    int number;

    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    MPI_Comm_rank(half, &number);
    SCR_Configf("SCR_PREFIX=half.%d", rank % 2);
    SCR_Config("SCR_CHECKPOINT_SECONDS=60");
    expect(SCR_Init_comm(half) == SCR_SUCCESS, "Init_comm of a half");
    MPI_Comm_free(&half);
    refused(SCR_Init(), SCR_ERR_STATE, "Init within a session");
    refused(SCR_Init_comm(MPI_COMM_WORLD), SCR_ERR_STATE, "Init_comm within a session");
    restart(before, number);
    checkpoint(name, number);
    expect(SCR_Finalize() == SCR_SUCCESS, "Finalize of a half");
    expect(is_unset("SCR_CHECKPOINT_SECONDS"), "a setting ends with its session");
}

static void of_all(const char *before, const char *name)
{
    int stop = 7;

    SCR_Config("SCR_PREFIX=all");
    expect(SCR_Init() == SCR_SUCCESS, "Init again");
    expect(is_unset("SCR_CHECKPOINT_SECONDS"), "a setting of the session before");
    restart(before, rank);
    expect(SCR_Should_exit(&stop) == SCR_SUCCESS && stop == 0, "no reason to halt is left of the session before");
    checkpoint(name, rank);
    expect(SCR_Finalize() == SCR_SUCCESS, "Finalize of all");
}

/* A session that fails to begin leaves no trace in the next one either. */
static void refused_session(void)
{
    SCR_Config("SCR_PREFIX=all");
    SCR_Config("SCR_ENABLE=0");
    refused(SCR_Init(), SCR_FAILURE, "Init with SCR_ENABLE=0");
    SCR_Config("SCR_ENABLE=1");
    expect(SCR_Init() == SCR_SUCCESS, "Init after SCR_ENABLE=0");
    expect(SCR_Finalize() == SCR_SUCCESS, "Finalize after SCR_ENABLE=0");
}

/* Another session takes the place of one at any point, though nobody has died, on a communicator in which ranks have changed places.
 * Datasets under way are dropped, and the settings of SCR_Config stay. */
static void recovered(void)
{
    char file[SCR_MAX_FILENAME], path[SCR_MAX_FILENAME];
    MPI_Comm turned;
    int number;

    SCR_Config("SCR_PREFIX=recovered");
    SCR_Config("SCR_CHECKPOINT_SECONDS=60");
    expect(SCR_Recover(MPI_COMM_WORLD) == SCR_SUCCESS, "Recover without a session");
    restart(NULL, rank);
    checkpoint("ckpt.1", rank);
    expect(SCR_Start_output("ckpt.2", SCR_FLAG_CHECKPOINT) == SCR_SUCCESS, "Start_output");
    snprintf(file, sizeof file, "ckpt.2/rank_%d", rank);
    expect(SCR_Route_file(file, path) == SCR_SUCCESS, "Route_file");
    refused(SCR_Recover(MPI_COMM_NULL), SCR_ERR_ARGUMENT, "Recover(MPI_COMM_NULL)");
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &turned);
    MPI_Comm_rank(turned, &number);
    expect(SCR_Recover(turned) == SCR_SUCCESS, "Recover within a phase");
    MPI_Comm_free(&turned);
    restart("ckpt.1", number);
    expect(!is_unset("SCR_CHECKPOINT_SECONDS"), "a setting goes on");
    checkpoint("ckpt.2", number);
    expect(SCR_Finalize() == SCR_SUCCESS, "Finalize after Recover");
    expect(SCR_Recover(MPI_COMM_WORLD) == SCR_SUCCESS, "Recover after Finalize, which has failed for others");
    restart("ckpt.2", rank);
    expect(SCR_Finalize() == SCR_SUCCESS, "Finalize again");
}

int main(int argc, char **argv)
{
    char before[32], name[32];
    int files = 0, threads = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    wrong_communicators();
    SCR_Config("SCR_PREFIX=handlers");
    errors_return(MPI_COMM_WORLD);
    for (int i = 0; i < 10; i++) {
        snprintf(before, sizeof before, "ckpt.%d", i - 1);
        snprintf(name, sizeof name, "ckpt.%d", i);
        of_all(i > 0 ? before : NULL, name);
        of_half(i > 0 ? before : NULL, name);
        if (i == 2) {
            files = entries_of("/proc/self/fd");
            threads = entries_of("/proc/self/task");
        }
    }
    as_many("/proc/self/fd", files);
    as_many("/proc/self/task", threads);
    refused_session();
    recovered();
    MPI_Finalize();
    if (rank == 0)
        printf("DONE\n");
    return 0;
}
