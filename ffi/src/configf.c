/* SCR_Configf's variable arguments, which stable Rust cannot receive: formats them and calls SCR_Config.
 * The exported symbol is in configf.rs and jumps to here; this name stays inside the library. */
#include "scr.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

const char *scr_configf_formatted(const char *format, ...);

const char *scr_configf_formatted(const char *format, ...)
{
    va_list arguments;
    const char *answer;
    char *text;
    int length;

    if (format == NULL)
        return SCR_Config(NULL);
    va_start(arguments, format);
    length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    text = length < 0 ? NULL : malloc((size_t)length + 1);
    if (text == NULL)
        return SCR_Config(NULL);
    va_start(arguments, format);
    vsnprintf(text, (size_t)length + 1, format, arguments);
    va_end(arguments);
    answer = SCR_Config(text);
    free(text);
    return answer;
}
