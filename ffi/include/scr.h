/* scr.h: the C interface of the scr checkpoint/restart runtime.
 *
 * Call SCR_Init or SCR_Init_comm after MPI_Init, and SCR_Finalize before MPI_Finalize. Between the two, every call is
 * collective over MPI_COMM_WORLD or the communicator given. Local are SCR_Route_file, SCR_Restart_ranks, SCR_Restart_files,
 * SCR_Restart_file, SCR_Get_version, SCR_Last_error and the queries of SCR_Config. No call ends the application unless the
 * user asked for it (SCR_HALT_EXIT=1). A failed call prints one line on standard error, returns one of the codes, and
 * sets its output flag to 0. After a failed SCR_Init, calls print nothing.
 */
#ifndef SCR_H
#define SCR_H

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this header. SCR_Get_version returns the version of the library. */
#define SCR_MAJOR_VERSION "1"
#define SCR_MINOR_VERSION "0"
#define SCR_PATCH_VERSION "0"
#define SCR_VERSION "v1.0.0"

/* Return codes. The numbers never change their meaning. */
#define SCR_SUCCESS (0)
#define SCR_FAILURE (1)      /* the operation failed on this rank or another one, or SCR_ENABLE=0 without SCR_PASS_THROUGH=1 */
#define SCR_ERR_STATE (2)    /* the call is not legal now: before SCR_Init, inside a phase, outside of one, ... */
#define SCR_ERR_ARGUMENT (3) /* NULL where a value is needed, a name too long, a path outside the prefix, ... */
#define SCR_ERR_CONFIG (4)   /* a setting is wrong, or the plugin that it names cannot be used */
#define SCR_ERR_IO (5)       /* a file or folder cannot be read or written */
#define SCR_ERR_MPI (6)      /* MPI is not running, a call to it failed, or a rank has died: see SCR_Recover */
#define SCR_ERR_INTERNAL (7) /* a defect of the library; this process can no longer use scr */

/* Size of every buffer that receives a name, including the terminating null. */
#define SCR_MAX_FILENAME 1024

/* Properties of a dataset for SCR_Start_output. Combine them with |. */
#define SCR_FLAG_NONE (0 << 0)
#define SCR_FLAG_CHECKPOINT (1 << 0) /* the job can restart from it */
#define SCR_FLAG_OUTPUT (1 << 1)     /* it must reach the prefix directory */

#if defined(__GNUC__)
#define SCR_PRINTF_LIKE __attribute__((format(printf, 1, 2)))
#else
#define SCR_PRINTF_LIKE
#endif

/* ---- Start and end ---- */

/* For all processes. After SCR_Finalize, another call begins another session. SCR_Init_comm does the same for some
 * processes only. */
int SCR_Init(void);
int SCR_Finalize(void);

/* ---- Configuration ---- */

/* "NAME=value" sets and "NAME=" unsets a parameter. Both return NULL and are legal only before SCR_Init; what they set
 * holds until SCR_Finalize. "NAME" returns its value at any time: NULL if it has none, otherwise a string that the caller must free(). */
const char* SCR_Config(const char* config);

/* The same, with the arguments of printf. */
const char* SCR_Configf(const char* format, ...) SCR_PRINTF_LIKE;

/* ---- Files ---- */

/* Returns in `file` (SCR_MAX_FILENAME bytes) the path to open in order to write or read `name`. Local. */
int SCR_Route_file(const char* name, char* file);

/* ---- Checkpoints and output ---- */

/* Sets flag to 1 if it is time for a checkpoint, otherwise to 0. */
int SCR_Need_checkpoint(int* flag);

/* Begins a dataset. If name is NULL, scr names it after its number. */
int SCR_Start_output(const char* name, int flags);

/* Ends the dataset. Pass 1 for `valid` if this process wrote all its files. Fails if any process passes 0. */
int SCR_Complete_output(int valid);

/* The same for a checkpoint without a name, as in earlier versions. */
int SCR_Start_checkpoint(void);
int SCR_Complete_checkpoint(int valid);

/* ---- Restart ---- */

/* Sets flag to 1 if there is a checkpoint to restart from, and returns its name. `name` may be NULL. */
int SCR_Have_restart(int* flag, char* name);

/* Begins reading the checkpoint. `name` may be NULL. */
int SCR_Start_restart(char* name);

/* With SCR_RESTART_OTHER_RANKS=1, SCR_Have_restart also offers what another number of processes wrote. Then, until
 * SCR_Complete_restart, each process may read any file of the checkpoint. SCR_Restart_ranks returns in `n` how many
 * processes wrote it, SCR_Restart_files in `count` how many files one of them wrote, and SCR_Restart_file in `name`
 * (SCR_MAX_FILENAME bytes) the name of file i, which SCR_Route_file takes. Ranks and files count from 0. Local.
 * Additions to the interface of C SCR. */
int SCR_Restart_ranks(int* n);
int SCR_Restart_files(int rank, int* count);
int SCR_Restart_file(int rank, int i, char* name);

/* Ends reading. If any process passes 0, it fails on all, and scr loads the next older checkpoint. */
int SCR_Complete_restart(int valid);

/* ---- Datasets, by the name given to SCR_Start_output ---- */

/* Declares that the application has restarted from this checkpoint on its own. The name of output that is no
 * checkpoint lets the application read that output back with the restart calls, once. */
int SCR_Current(const char* name);

/* Removes the dataset from the index. Its files stay. */
int SCR_Drop(const char* name);

/* Deletes the files of the dataset from the prefix directory and from the cache. */
int SCR_Delete(const char* name);

/* ---- General ---- */

/* Returns the version of the library. Do not free it. */
char* SCR_Get_version(void);

/* Sets flag to 1 if the application should stop now, otherwise to 0. */
int SCR_Should_exit(int* flag);

/* Why the last call of this thread that failed has failed, on one line; "" before the first. Valid until the
 * next call of this thread fails; not to be freed. An addition to the interface of C SCR. */
const char* SCR_Last_error(void);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SCR_H */

/* ---- Communicators: include mpi.h before this header ---- */

#if defined(MPI_VERSION) && !defined(SCR_H_COMM)
#define SCR_H_COMM

#ifdef __cplusplus
extern "C" {
#endif

/* SCR_Init for the processes of a communicator, all of which call it. scr works on a duplicate: `comm` may be freed at any time.
 * Each of several communicators in one launch needs a prefix directory of its own. An addition to the interface of C SCR. */
int SCR_Init_comm(MPI_Comm comm);

/* Goes on after processes have died, with an MPI that goes on as well. Once one is dead, every collective call returns
 * SCR_ERR_MPI. Make a communicator of the processes that go on, and call this on all of them that have a session; others call
 * SCR_Init_comm with the same communicator. The old session ends without a message to anybody: what was under way in it is
 * dropped. Then all is as after SCR_Init, with the newest checkpoint to restart from. Legal at any time, also within a phase.
 * If it fails, call it again with another communicator. An addition to the interface of C SCR. */
int SCR_Recover(MPI_Comm newcomm);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif
