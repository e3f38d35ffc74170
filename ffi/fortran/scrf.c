/* libscrf.so: the Fortran interface of scr, over the one libscr.so.
 *
 * Fortran passes every argument by reference, and after them the length of each character argument by value, as a
 * size_t (gfortran 8 and later, flang, ifort and ifx on 64-bit systems). Trailing blanks of what comes in are not part
 * of a name; what goes out is padded with blanks. A buffer that is too short is an error: a path cut short
 * would name another file. Compilers append one underscore to a name, and some a second where the name has one already.
 */
#include "scr.h"

#include <stdlib.h>
#include <string.h>

/* Defines the subroutine under its name with one underscore and with two. */
#define SUBROUTINE(name, parameters)                                  \
    void name##_ parameters;                                          \
    void name##__ parameters __attribute__((alias(#name "_")));       \
    void name##_ parameters

/* SCR_Config with a code, for the interfaces of other languages alone. */
int scr_config_with_code(const char *line, char **value);

/* SCR_Init_comm and SCR_Recover with a handle as Fortran has it, for these interfaces alone. */
int scr_init_comm_of_fortran(int comm);
int scr_recover_of_fortran(int newcomm);

/* Fails, and says that a variable of Fortran is too short for the answer of `call`. */
int scr_refuse_short(const char *call, size_t needed, size_t length);

/* ---- Strings ---- */

/* Copies `text` without its trailing blanks to `name`, which has SCR_MAX_FILENAME bytes. What is too long gets no null: the
 * library, which reads no further, refuses it and still takes part in a collective call. */
static const char *read_text(const char *text, size_t length, char *name)
{
    while (length > 0 && text[length - 1] == ' ')
        length--;
    if (length > SCR_MAX_FILENAME)
        length = SCR_MAX_FILENAME;
    memcpy(name, text, length);
    if (length < SCR_MAX_FILENAME)
        name[length] = '\0';
    return name;
}

/* Copies `name` to `text` and fills it up with blanks. Fails where it does not fit, and `text` is blank then; a call that has
 * failed before keeps its code. */
static void write_text(int *ierror, const char *call, const char *name, char *text, size_t length)
{
    const size_t needed = strlen(name);

    memset(text, ' ', length);
    if (needed <= length)
        memcpy(text, name, needed);
    else if (*ierror == SCR_SUCCESS)
        *ierror = scr_refuse_short(call, needed, length);
}

/* ---- Start and end ---- */

SUBROUTINE(scr_init, (int *ierror))
{
    *ierror = SCR_Init();
}

SUBROUTINE(scr_init_comm, (const int *comm, int *ierror))
{
    *ierror = scr_init_comm_of_fortran(*comm);
}

SUBROUTINE(scr_recover, (const int *newcomm, int *ierror))
{
    *ierror = scr_recover_of_fortran(*newcomm);
}

SUBROUTINE(scr_finalize, (int *ierror))
{
    *ierror = SCR_Finalize();
}

/* ---- Configuration ---- */

/* `val` receives the value where `config` asks for one. It is blank, and the call fails, where the parameter has none. */
SUBROUTINE(scr_config, (const char *config, char *val, int *ierror, size_t config_length, size_t val_length))
{
    char *line = malloc(config_length + 1), *value = NULL;

    memset(val, ' ', val_length);
    if (line == NULL) {
        *ierror = SCR_FAILURE;
        return;
    }
    while (config_length > 0 && config[config_length - 1] == ' ')
        config_length--;
    memcpy(line, config, config_length);
    line[config_length] = '\0';
    *ierror = scr_config_with_code(line, &value);
    if (value != NULL)
        write_text(ierror, "SCR_Config", value, val, val_length);
    else if (*ierror == SCR_SUCCESS && strchr(line, '=') == NULL)
        *ierror = SCR_FAILURE;
    free(value);
    free(line);
}

/* ---- Files ---- */

SUBROUTINE(scr_route_file, (const char *name, char *file, int *ierror, size_t name_length, size_t file_length))
{
    char given[SCR_MAX_FILENAME], path[SCR_MAX_FILENAME] = "";

    /* Without a running SCR the call fails and gives the name, for programs that do not look at ierror. */
    *ierror = SCR_Route_file(read_text(name, name_length, given), path);
    write_text(ierror, "SCR_Route_file", path, file, file_length);
}

/* ---- Checkpoints and output ---- */

SUBROUTINE(scr_need_checkpoint, (int *flag, int *ierror))
{
    *ierror = SCR_Need_checkpoint(flag);
}

SUBROUTINE(scr_start_output, (const char *name, const int *flags, int *ierror, size_t name_length))
{
    char given[SCR_MAX_FILENAME];

    *ierror = SCR_Start_output(read_text(name, name_length, given), *flags);
}

SUBROUTINE(scr_complete_output, (const int *valid, int *ierror))
{
    *ierror = SCR_Complete_output(*valid);
}

SUBROUTINE(scr_start_checkpoint, (int *ierror))
{
    *ierror = SCR_Start_checkpoint();
}

SUBROUTINE(scr_complete_checkpoint, (const int *valid, int *ierror))
{
    *ierror = SCR_Complete_checkpoint(*valid);
}

/* ---- Restart ---- */

SUBROUTINE(scr_have_restart, (int *flag, char *name, int *ierror, size_t name_length))
{
    char found[SCR_MAX_FILENAME] = "";

    *ierror = SCR_Have_restart(flag, found);
    write_text(ierror, "SCR_Have_restart", found, name, name_length);
    if (*ierror != SCR_SUCCESS)
        *flag = 0;
}

SUBROUTINE(scr_start_restart, (char *name, int *ierror, size_t name_length))
{
    char found[SCR_MAX_FILENAME] = "";
    int flag = 0;

    /* Whether the name fits is clear before the phase begins: one that began in a call that failed would stay open. */
    *ierror = SCR_Have_restart(&flag, found);
    write_text(ierror, "SCR_Start_restart", found, name, name_length);
    if (*ierror == SCR_SUCCESS)
        *ierror = SCR_Start_restart(NULL);
}

SUBROUTINE(scr_restart_ranks, (int *n, int *ierror))
{
    *ierror = SCR_Restart_ranks(n);
}

SUBROUTINE(scr_restart_files, (const int *rank, int *count, int *ierror))
{
    *ierror = SCR_Restart_files(*rank, count);
}

/* Files count from 1 in Fortran. */
SUBROUTINE(scr_restart_file, (const int *rank, const int *i, char *name, int *ierror, size_t name_length))
{
    char found[SCR_MAX_FILENAME] = "";

    *ierror = SCR_Restart_file(*rank, *i - 1, found);
    write_text(ierror, "SCR_Restart_file", found, name, name_length);
}

SUBROUTINE(scr_complete_restart, (const int *valid, int *ierror))
{
    *ierror = SCR_Complete_restart(*valid);
}

/* ---- Datasets, by the name given to SCR_START_OUTPUT ---- */

SUBROUTINE(scr_current, (const char *name, int *ierror, size_t name_length))
{
    char given[SCR_MAX_FILENAME];

    *ierror = SCR_Current(read_text(name, name_length, given));
}

SUBROUTINE(scr_drop, (const char *name, int *ierror, size_t name_length))
{
    char given[SCR_MAX_FILENAME];

    *ierror = SCR_Drop(read_text(name, name_length, given));
}

SUBROUTINE(scr_delete, (const char *name, int *ierror, size_t name_length))
{
    char given[SCR_MAX_FILENAME];

    *ierror = SCR_Delete(read_text(name, name_length, given));
}

/* ---- General ---- */

SUBROUTINE(scr_get_version, (char *version, int *ierror, size_t version_length))
{
    *ierror = SCR_SUCCESS;
    write_text(ierror, "SCR_Get_version", SCR_Get_version(), version, version_length);
}

SUBROUTINE(scr_should_exit, (int *flag, int *ierror))
{
    *ierror = SCR_Should_exit(flag);
}

SUBROUTINE(scr_last_error, (char *text, size_t text_length))
{
    const char *found = SCR_Last_error();
    const size_t length = strlen(found) < text_length ? strlen(found) : text_length;

    memset(text, ' ', text_length);
    memcpy(text, found, length);
}
