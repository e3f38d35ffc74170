/* Every function with exactly the type that C SCR v3.1's header gives it: a pointer of that type takes it without
 * a cast, in C and in C++; and our own. Compiled together with prototypes_again.c, so that the header defines nothing twice. */
#include "scr.h"
#ifdef WITH_MAIN
#include <mpi.h>
#endif
#include "scr.h" /* twice is the same as once, but after mpi.h there is one more */

int use_all(int argc);

int use_all(int argc)
{
    int (*nothing[])(void) = {SCR_Init, SCR_Finalize, SCR_Start_checkpoint};
    int (*valid[])(int) = {SCR_Complete_output, SCR_Complete_checkpoint, SCR_Complete_restart};
    int (*flag[])(int *) = {SCR_Need_checkpoint, SCR_Should_exit};
    int (*name[])(const char *) = {SCR_Current, SCR_Drop, SCR_Delete};
    int (*route)(const char *, char *) = SCR_Route_file;
    int (*start_output)(const char *, int) = SCR_Start_output;
    int (*have_restart)(int *, char *) = SCR_Have_restart;
    int (*start_restart)(char *) = SCR_Start_restart;
    const char *(*config)(const char *) = SCR_Config;
    const char *(*configf)(const char *, ...) = SCR_Configf;
    char *(*version)(void) = SCR_Get_version;
    const char *(*last_error)(void) = SCR_Last_error;
#ifdef WITH_MAIN
    int (*communicator[])(MPI_Comm) = {SCR_Init_comm, SCR_Recover};
#else
    int communicator[] = {1, 1};
#endif
    int (*restart_ranks)(int *) = SCR_Restart_ranks;
    int (*restart_files)(int, int *) = SCR_Restart_files;
    int (*restart_file)(int, int, char *) = SCR_Restart_file;
    char buffer[SCR_MAX_FILENAME];
    const char *macros[] = {SCR_MAJOR_VERSION, SCR_MINOR_VERSION, SCR_PATCH_VERSION, SCR_VERSION};
    const int flags = SCR_FLAG_NONE | SCR_FLAG_CHECKPOINT | SCR_FLAG_OUTPUT;

    buffer[0] = macros[0][0];
    return argc > 1000 && nothing[argc % 3] && valid[argc % 3] && flag[argc % 2] && name[argc % 3] && route &&
           start_output && have_restart && start_restart && config && configf && version && last_error && communicator[argc % 2] && restart_ranks && restart_files && restart_file && buffer[0] && flags == 3 &&
           SCR_SUCCESS == 0 && SCR_FAILURE == 1 && SCR_MAX_FILENAME == 1024;
}
