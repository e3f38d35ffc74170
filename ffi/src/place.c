/* What a program that libscr.a is linked into tells of the place of scr. There is no library to ask for its path. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>

/* The folder that an archive was installed in. scripts/install.sh defines it there; libscr.so has none. */
extern const char scr_folder_of_archive[] __attribute__((weak, visibility("hidden")));

char *scr_library_folders(void);

/* The folders that the dynamic linker searches for this program, as for libscr.so, and last the one of the archive; with colons
 * between them, to be freed. NULL in libscr.so. */
char *scr_library_folders(void)
{
    Dl_info info;
    Dl_serinfo size, *path = NULL;
    FILE *text;
    char *folders = NULL;
    size_t bytes;
    unsigned int i;
    void *self = NULL;

    if (scr_folder_of_archive == NULL || (text = open_memstream(&folders, &bytes)) == NULL)
        return NULL;
    if (dladdr1(scr_folder_of_archive, &info, &self, RTLD_DL_LINKMAP) != 0 && dlinfo(self, RTLD_DI_SERINFOSIZE, &size) == 0)
        path = malloc(size.dls_size);
    if (path != NULL && dlinfo(self, RTLD_DI_SERINFOSIZE, path) == 0 && dlinfo(self, RTLD_DI_SERINFO, path) == 0)
        for (i = 0; i < path->dls_cnt; i++)
            fprintf(text, "%s:", path->dls_serpath[i].dls_name);
    free(path);
    fputs(scr_folder_of_archive, text);
    fclose(text);
    return folders;
}
