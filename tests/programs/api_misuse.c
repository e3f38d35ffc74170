/* api_misuse: calls the library wrongly in every way that its header leaves open. Each wrong call must return an
 * error and leave the job as it was; prints "FAIL what" where one does not, and "DONE" at the end.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp */

#include "scr.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank;

static void expect(int good, const char *what)
{
    if (!good)
        printf("FAIL %d %s\n", rank, what);
}

/* Expects an error, of this kind if one is given. */
static void refused(int code, int kind, const char *what)
{
    if (code == SCR_SUCCESS || (kind != 0 && code != kind))
        printf("FAIL %d %s returned %d\n", rank, what, code);
}

static void before_init(void)
{
    char buffer[SCR_MAX_FILENAME];
    int flag = 7;

    refused(SCR_Need_checkpoint(&flag), SCR_ERR_STATE, "Need_checkpoint before Init");
    refused(SCR_Start_output("a", SCR_FLAG_CHECKPOINT), SCR_ERR_STATE, "Start_output before Init");
    refused(SCR_Route_file("a", buffer), SCR_ERR_STATE, "Route_file before Init");
    expect(buffer[0] == '\0', "Route_file before Init gives no path");
    refused(SCR_Complete_output(1), SCR_ERR_STATE, "Complete_output before Init");
    refused(SCR_Have_restart(&flag, buffer), SCR_ERR_STATE, "Have_restart before Init");
    refused(SCR_Start_restart(buffer), SCR_ERR_STATE, "Start_restart before Init");
    refused(SCR_Complete_restart(1), SCR_ERR_STATE, "Complete_restart before Init");
    refused(SCR_Restart_ranks(&flag), SCR_ERR_STATE, "Restart_ranks before Init");
    refused(SCR_Restart_files(0, &flag), SCR_ERR_STATE, "Restart_files before Init");
    refused(SCR_Restart_file(0, 0, buffer), SCR_ERR_STATE, "Restart_file before Init");
    refused(SCR_Should_exit(&flag), SCR_ERR_STATE, "Should_exit before Init");
    refused(SCR_Current("a"), SCR_ERR_STATE, "Current before Init");
    refused(SCR_Drop("a"), SCR_ERR_STATE, "Drop before Init");
    refused(SCR_Delete("a"), SCR_ERR_STATE, "Delete before Init");
    refused(SCR_Finalize(), SCR_ERR_STATE, "Finalize before Init");
    expect(flag == 0, "a refused call says no");
}

/* One rank alone cannot start: all get an error, and may try again. */
static void init_without_folder(void)
{
    char home[SCR_MAX_FILENAME], gone[] = "/tmp/scr-gone-XXXXXX";

    expect(getcwd(home, sizeof home) != NULL, "a current folder");
    if (rank == 1)
        expect(mkdtemp(gone) != NULL && chdir(gone) == 0 && rmdir(gone) == 0, "a current folder that has gone");
    refused(SCR_Init(), SCR_ERR_IO, "Init in a folder that has gone on one rank");
    expect(chdir(home) == 0, "back to the folder");
}

/* Asks for a value: NULL means that there is none. The answer belongs to the caller, who may write into it. */
static void answers(const char *question, const char *value)
{
    char *first = (char *)SCR_Config(question), *second = (char *)SCR_Config(question);

    if (value == NULL) {
        if (first != NULL || second != NULL)
            printf("FAIL %d %s has a value: %s\n", rank, question, first);
    } else if (first == NULL || second == NULL || strcmp(first, value) != 0) {
        printf("FAIL %d %s is %s and not %s\n", rank, question, first == NULL ? "unset" : first, value);
    } else {
        memset(first, '#', strlen(first));
        expect(first != second && strcmp(second, value) == 0, "each answer is a copy of its own");
    }
    free(first);
    free(second);
}

static void simple_parameters(void)
{
    answers("SCR_CHECKPOINT_SECONDS", NULL);
    expect(SCR_Configf("SCR_CHECKPOINT_SECONDS=%d", 3600) == NULL, "Configf sets");
    answers("SCR_CHECKPOINT_SECONDS", "3600");
    expect(SCR_Config("SCR_CHECKPOINT_SECONDS=7200") == NULL, "Config sets");
    answers("SCR_CHECKPOINT_SECONDS", "7200");
    expect(SCR_Config("SCR_CHECKPOINT_SECONDS=") == NULL, "Config unsets");
    answers("SCR_CHECKPOINT_SECONDS", NULL);
    SCR_Configf("%s=%d", "SCR_CHECKPOINT_SECONDS", 5400);
    SCR_Config("SCR_JOB_NAME=\"a name/with/=/sign\"");
    answers("SCR_JOB_NAME", "a name/with/=/sign");
    SCR_Config("SCR_LOG_DB_PASS=hunter2-of-the-application");
    answers("SCR_LOG_DB_PASS", "hunter2-of-the-application");
    /* The environment counts before the application, which cannot unset what is there. */
    answers("SCR_FLUSH", "0");
    SCR_Config("SCR_FLUSH=5");
    answers("SCR_FLUSH", "0");
    SCR_Config("SCR_FLUSH=");
    answers("SCR_FLUSH", "0");
}

static void parameters_of_several_items(void)
{
    answers("CKPT=0 TYPE", NULL);
    expect(SCR_Config("CKPT=0 TYPE=XOR SET_SIZE=16") == NULL, "Config sets several items");
    SCR_Configf("CKPT=%d TYPE=%s INTERVAL=%d", 1, "PARTNER", 4);
    answers("CKPT=0 TYPE", "XOR");
    answers("CKPT=0 SET_SIZE", "16");
    answers("CKPT=1 TYPE", "PARTNER");
    answers("CKPT=1 SET_SIZE", NULL);
    answers("CKPT=2 TYPE", NULL);
    SCR_Config("CKPT=0 SET_SIZE=4");
    answers("CKPT=0 SET_SIZE", "4");
    SCR_Config("CKPT=1 INTERVAL=");
    answers("CKPT=1 INTERVAL", NULL);
    answers("CKPT=1 TYPE", "PARTNER");
    answers("CKPT", NULL); /* it has two values */
    SCR_Config("CKPT=");
    answers("CKPT", NULL);
    answers("CKPT=0 TYPE", NULL);
    SCR_Config("CKPT=0 TYPE=XOR SET_SIZE=8");
}

static void config(void)
{
    simple_parameters();
    parameters_of_several_items();
    expect(SCR_Config(NULL) == NULL, "Config(NULL)");
    expect(SCR_Config("SCR_NO_SUCH_PARAMETER=1") == NULL, "Config of an unknown name");
    expect(SCR_Config("SCR_NO_SUCH_PARAMETER") == NULL, "Config asks for an unknown name");
    expect(SCR_Config("= =") == NULL, "Config without a name");
    expect(SCR_Config("") == NULL, "Config of nothing");
    if (rank == 1)
        SCR_Config("SCR_CHECKPOINT_OVERHEAD=1");
}

/* Unusable settings are refused, and once they are fixed the library starts. */
static void wrong_settings(void)
{
    SCR_Config("SCR_GROUP=NO_SUCH_GROUP");
    refused(SCR_Init(), SCR_ERR_CONFIG, "Init with a group that is not described");
    before_init();
    SCR_Config("SCR_GROUP=");
}

/* The settings that counted at the start count from then on. */
static void config_after_init(void)
{
    answers("SCR_CHECKPOINT_SECONDS", "5400");
    answers("SCR_JOB_NAME", "a name/with/=/sign");
    answers("SCR_CHECKPOINT_OVERHEAD", NULL);
    answers("CKPT=0 SET_SIZE", "8");
    expect(SCR_Config("SCR_CHECKPOINT_SECONDS=1") == NULL, "Config sets after Init");
    expect(SCR_Config("SCR_CHECKPOINT_SECONDS=") == NULL, "Config unsets after Init");
    SCR_Config("SCR_LOG_DB_PASS=hunter2-once-more");
    SCR_Configf("CKPT=%d SET_SIZE=2", 0);
    answers("SCR_CHECKPOINT_SECONDS", "5400");
    answers("CKPT=0 SET_SIZE", "8");
    answers("SCR_FLUSH", "0");
}

static void names(void)
{
    char endless[2 * SCR_MAX_FILENAME], file[SCR_MAX_FILENAME];


    memset(endless, 'x', sizeof endless);
    memset(file, '#', sizeof file);
    refused(SCR_Route_file(NULL, file), SCR_ERR_ARGUMENT, "Route_file of NULL");
    refused(SCR_Route_file("a", NULL), SCR_ERR_ARGUMENT, "Route_file into NULL");
    refused(SCR_Route_file(endless, file), SCR_ERR_ARGUMENT, "Route_file of an endless name");
    expect(file[0] == '\0', "a refused Route_file gives no path");
    expect(SCR_Route_file("some/name", file) == SCR_SUCCESS && strcmp(file, "some/name") == 0,
           "Route_file outside of a phase copies the name");
    expect(SCR_Route_file(file, file) == SCR_SUCCESS && strcmp(file, "some/name") == 0,
           "Route_file may write where it reads");
    refused(SCR_Start_output(endless, SCR_FLAG_CHECKPOINT), SCR_ERR_ARGUMENT, "Start_output with an endless name");
    refused(SCR_Start_output("", SCR_FLAG_CHECKPOINT), 0, "Start_output with an empty name");
    refused(SCR_Start_output("flags", 1 << 20), SCR_ERR_ARGUMENT, "Start_output with unknown flags");
    refused(SCR_Current(NULL), SCR_ERR_ARGUMENT, "Current of NULL");
    refused(SCR_Drop(NULL), SCR_ERR_ARGUMENT, "Drop of NULL");
    refused(SCR_Delete(NULL), SCR_ERR_ARGUMENT, "Delete of NULL");
    refused(SCR_Delete(endless), SCR_ERR_ARGUMENT, "Delete of an endless name");
    expect(SCR_Drop("no such dataset") == SCR_SUCCESS, "Drop of what is not there");
    expect(SCR_Delete("no such dataset") == SCR_SUCCESS, "Delete of what is not there");
    refused(SCR_Current("no such dataset"), 0, "Current of what is not there");
}

static void flags(void)
{
    refused(SCR_Need_checkpoint(NULL), SCR_ERR_ARGUMENT, "Need_checkpoint(NULL)");
    refused(SCR_Should_exit(NULL), SCR_ERR_ARGUMENT, "Should_exit(NULL)");
    refused(SCR_Have_restart(NULL, NULL), SCR_ERR_ARGUMENT, "Have_restart(NULL)");
}

static void idle(void)
{
    refused(SCR_Init(), SCR_ERR_STATE, "a second Init");
    refused(SCR_Complete_output(1), SCR_ERR_STATE, "Complete_output without a start");
    refused(SCR_Complete_checkpoint(1), SCR_ERR_STATE, "Complete_checkpoint without a start");
    refused(SCR_Start_restart(NULL), 0, "Start_restart with nothing to restart from");
    refused(SCR_Complete_restart(1), SCR_ERR_STATE, "Complete_restart without a start");
    refused(SCR_Restart_ranks(NULL), 0, "Restart_ranks without a start");
    refused(SCR_Restart_files(-1, NULL), SCR_ERR_ARGUMENT, "Restart_files of rank -1");
    refused(SCR_Restart_file(0, -1, NULL), SCR_ERR_ARGUMENT, "Restart_file(NULL)");
}

/* One rank errs alone: the others must not wait for it for ever. */
static void one_alone(void)
{
    int flag = 0;

    if (rank == 0)
        refused(SCR_Need_checkpoint(NULL), SCR_ERR_ARGUMENT, "Need_checkpoint(NULL) on one rank");
    else
        expect(SCR_Need_checkpoint(&flag) == SCR_SUCCESS, "Need_checkpoint on the others");
    refused(SCR_Start_output(rank == 0 ? "" : "others", SCR_FLAG_CHECKPOINT), 0, "Start_output with two names");
    refused(SCR_Delete(rank == 0 ? NULL : "others"), 0, "Delete of NULL on one rank");
}

static void write_to(const char *path)
{
    FILE *file = fopen(path, "w");

    expect(file != NULL, "the routed path can be written");
    if (file != NULL) {
        fputs("state", file);
        fclose(file);
    }
}

/* A relative name starts at the folder that the process is in now, or where it was last known to be when that folder is gone. */
static void in_another_folder(const char *name, const char *file)
{
    char here[SCR_MAX_FILENAME], folder[] = "elsewhere.XXXXXX", up[SCR_MAX_FILENAME], again[SCR_MAX_FILENAME];
    char it[SCR_MAX_FILENAME];

    expect(getcwd(here, sizeof here) != NULL && mkdtemp(folder) != NULL && chdir(folder) == 0, "another folder");
    snprintf(up, sizeof up, "../%s", name);
    expect(SCR_Route_file(up, again) == SCR_SUCCESS && strcmp(file, again) == 0, "the same file from another folder");
    snprintf(it, sizeof it, "../%s", folder);
    expect(rmdir(it) == 0, "the folder goes");
    expect(SCR_Route_file(up, again) == SCR_SUCCESS && strcmp(file, again) == 0, "the same file from a folder that is gone");
    expect(chdir(here) == 0, "back again");
}

static void in_output(void)
{
    char file[SCR_MAX_FILENAME], again[SCR_MAX_FILENAME], name[64];
    int flag = 7;

    expect(SCR_Start_output("misuse", SCR_FLAG_CHECKPOINT) == SCR_SUCCESS, "Start_output");
    refused(SCR_Start_output("twice", SCR_FLAG_CHECKPOINT), SCR_ERR_STATE, "Start_output inside an output");
    refused(SCR_Need_checkpoint(&flag), SCR_ERR_STATE, "Need_checkpoint inside an output");
    refused(SCR_Should_exit(&flag), SCR_ERR_STATE, "Should_exit inside an output");
    refused(SCR_Have_restart(&flag, NULL), SCR_ERR_STATE, "Have_restart inside an output");
    refused(SCR_Start_restart(NULL), SCR_ERR_STATE, "Start_restart inside an output");
    refused(SCR_Complete_restart(1), SCR_ERR_STATE, "Complete_restart inside an output");
    refused(SCR_Current("misuse"), SCR_ERR_STATE, "Current inside an output");
    refused(SCR_Drop("misuse"), SCR_ERR_STATE, "Drop inside an output");
    refused(SCR_Delete("misuse"), SCR_ERR_STATE, "Delete inside an output");
    refused(SCR_Finalize(), SCR_ERR_STATE, "Finalize inside an output");
    expect(flag == 0, "a call in the wrong state says no");
    memset(file, '#', sizeof file);
    refused(SCR_Route_file("/etc/passwd", file), SCR_ERR_ARGUMENT, "Route_file outside of the prefix");
    refused(SCR_Route_file("../../outside", file), SCR_ERR_ARGUMENT, "Route_file that climbs out of the prefix");
    refused(SCR_Route_file("", file), SCR_ERR_ARGUMENT, "Route_file of the empty name");
    expect(file[0] == '\0', "refused paths give no path");
    snprintf(name, sizeof name, "misuse/rank_%d", rank);
    expect(SCR_Route_file(name, file) == SCR_SUCCESS, "Route_file");
    expect(SCR_Route_file(name, again) == SCR_SUCCESS && strcmp(file, again) == 0, "the same file again");
    in_another_folder(name, file);
    snprintf(name, sizeof name, "misuse/other/rank_%d", rank);
    refused(SCR_Route_file(name, again), SCR_ERR_ARGUMENT, "the same base name in another folder");
    write_to(file);
    refused(SCR_Complete_output(1), 0, "Complete_output without the files that could not be routed");
    expect(SCR_Start_output("misuse", SCR_FLAG_CHECKPOINT) == SCR_SUCCESS, "Start_output after all that");
    snprintf(name, sizeof name, "misuse/rank_%d", rank);
    expect(SCR_Route_file(name, file) == SCR_SUCCESS, "Route_file after all that");
    write_to(file);
    expect(SCR_Complete_output(1) == SCR_SUCCESS, "Complete_output after all that");
}

static void after_finalize(void)
{
    char file[SCR_MAX_FILENAME];
    int flag = 7;

    refused(SCR_Finalize(), SCR_ERR_STATE, "a second Finalize");
    refused(SCR_Need_checkpoint(&flag), SCR_ERR_STATE, "Need_checkpoint after Finalize");
    refused(SCR_Start_checkpoint(), SCR_ERR_STATE, "Start_checkpoint after Finalize");
    refused(SCR_Route_file("a", file), SCR_ERR_STATE, "Route_file after Finalize");
    expect(strcmp(SCR_Get_version(), SCR_VERSION) == 0, "Get_version after Finalize");
    answers("SCR_CHECKPOINT_SECONDS", NULL); /* it has ended with the session */
}

int main(int argc, char **argv)
{
    refused(SCR_Init(), SCR_ERR_MPI, "Init before MPI_Init");
    expect(strcmp(SCR_Get_version(), SCR_VERSION) == 0, "Get_version before Init");
    before_init();
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    config();
    before_init();
    wrong_settings();
    init_without_folder();
    expect(SCR_Init() == SCR_SUCCESS, "Init");
    config_after_init();
    idle();
    names();
    flags();
    one_alone();
    in_output();
    expect(SCR_Start_checkpoint() == SCR_SUCCESS, "Start_checkpoint");
    refused(SCR_Complete_checkpoint(rank != 0), SCR_FAILURE, "a checkpoint that is not valid on one rank");
    expect(SCR_Finalize() == SCR_SUCCESS, "Finalize");
    after_finalize();
    MPI_Finalize();
    refused(SCR_Finalize(), SCR_ERR_STATE, "Finalize after MPI_Finalize");
    if (rank == 0)
        printf("DONE\n");
    return 0;
}
