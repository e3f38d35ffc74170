/* scr.h: the C interface of the scr checkpoint/restart runtime.
 *
 * Call SCR_Init after MPI_Init and SCR_Finalize before MPI_Finalize. Between the two, every call is collective
 * over MPI_COMM_WORLD, apart from SCR_Route_file and SCR_Get_version. No call ends the application, unless the
 * user asked for it (SCR_HALT_EXIT=1): a failed one prints one line on standard error and returns one of the
 * codes below; after an SCR_Init that has failed they return only. A flag that a call was to set is 0 then.
 */
#ifndef SCR_H
#define SCR_H

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this header; SCR_Get_version tells the library's. */
#define SCR_MAJOR_VERSION "1"
#define SCR_MINOR_VERSION "0"
#define SCR_PATCH_VERSION "0"
#define SCR_VERSION "v1.0.0"

/* What the functions return. The numbers never change their meaning. */
#define SCR_SUCCESS (0)
#define SCR_FAILURE (1)      /* the operation failed on this or another rank, or SCR_ENABLE=0 */
#define SCR_ERR_STATE (2)    /* not to be called now: before SCR_Init, inside a phase, outside of one, ... */
#define SCR_ERR_ARGUMENT (3) /* NULL where a value is needed, an over-long name, a path outside the prefix, ... */
#define SCR_ERR_CONFIG (4)   /* a setting is wrong, or a plugin that it names cannot be used */
#define SCR_ERR_IO (5)       /* a file or folder cannot be read or written */
#define SCR_ERR_MPI (6)      /* MPI is not running, or a call to it failed */
#define SCR_ERR_INTERNAL (7) /* a defect of the library; scr is of no use to this process any more */

/* Size of every buffer that receives a name, with its terminating null. */
#define SCR_MAX_FILENAME 1024

/* Properties of a dataset, to be combined with | for SCR_Start_output. */
#define SCR_FLAG_NONE (0 << 0)
#define SCR_FLAG_CHECKPOINT (1 << 0) /* the job can restart from it */
#define SCR_FLAG_OUTPUT (1 << 1)     /* it must reach the prefix directory */

#if defined(__GNUC__)
#define SCR_PRINTF_LIKE __attribute__((format(printf, 1, 2)))
#else
#define SCR_PRINTF_LIKE
#endif

/* ---- Start and end ---- */

int SCR_Init(void);
int SCR_Finalize(void);

/* ---- Configuration ---- */

/* "NAME=value" sets and "NAME=" unsets a parameter, both before SCR_Init only; they return NULL.
 * "NAME" asks for its value, at any time: NULL if it has none, else a string that the caller frees with free(). */
const char* SCR_Config(const char* config);

/* The same, with the arguments of printf. */
const char* SCR_Configf(const char* format, ...) SCR_PRINTF_LIKE;

/* ---- Files ---- */

/* Tells in `file` (SCR_MAX_FILENAME bytes) which path to open in order to write or read `name`. Local. */
int SCR_Route_file(const char* name, char* file);

/* ---- Checkpoints and output ---- */

/* Sets flag to 1 if it is time for a checkpoint, else to 0. */
int SCR_Need_checkpoint(int* flag);

/* Begins a dataset. With a NULL name it is called after its number. */
int SCR_Start_output(const char* name, int flags);

/* Ends it; `valid` is 1 if this process wrote all its files. Succeeds only if it is 1 on all processes. */
int SCR_Complete_output(int valid);

/* The same for a checkpoint without a name, as earlier versions had it. */
int SCR_Start_checkpoint(void);
int SCR_Complete_checkpoint(int valid);

/* ---- Restart ---- */

/* Sets flag to 1 if there is a checkpoint to restart from, and gives its name; `name` may be NULL. */
int SCR_Have_restart(int* flag, char* name);

/* Begins to read it; `name` may be NULL. */
int SCR_Start_restart(char* name);

/* Ends it. If `valid` is 0 anywhere it fails everywhere, and the next older checkpoint is loaded. */
int SCR_Complete_restart(int valid);

/* ---- Datasets, by the name given to SCR_Start_output ---- */

/* The application has restarted from this one by itself. */
int SCR_Current(const char* name);

/* Forgets its entry in the index; the files stay. */
int SCR_Drop(const char* name);

/* Deletes its files, from the prefix directory and from the cache. */
int SCR_Delete(const char* name);

/* ---- General ---- */

/* The library's version; not to be freed. */
char* SCR_Get_version(void);

/* Sets flag to 1 if the application should stop now, else to 0. */
int SCR_Should_exit(int* flag);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SCR_H */
