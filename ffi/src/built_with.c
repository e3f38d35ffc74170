/* Which MPI the library was built with. Only the preprocessor knows: the handles that MPI passes have no name in them. */
#include <mpi.h>

int scr_built_with_open_mpi(void);

int scr_built_with_open_mpi(void)
{
#ifdef OPEN_MPI
    return 1;
#else
    return 0;
#endif
}
