/* The second file that includes scr.h: with main, an application that uses it from two files. */
#include "scr.h"

int use_all(int argc);

#ifdef WITH_MAIN
int main(int argc, char **argv)
{
    (void)argv;
    return use_all(argc) == SCR_SUCCESS ? 0 : 1;
}
#else
int use_again(void);

int use_again(void)
{
    return use_all(1) + SCR_FLAG_OUTPUT;
}
#endif
