/* What only the header of the MPI knows that the library is built with, and its preprocessor. */
#include <mpi.h>

int scr_built_with_open_mpi(void);
MPI_Comm scr_comm_of_fortran(MPI_Fint number);

/* Which MPI that is. The handles that MPI passes have no name in them. */
int scr_built_with_open_mpi(void)
{
#ifdef OPEN_MPI
    return 1;
#else
    return 0;
#endif
}

/* The communicator of a handle as Fortran has it. In some MPIs that is no function, and some give nothing for a number that is
 * no handle. */
MPI_Comm scr_comm_of_fortran(MPI_Fint number)
{
    const MPI_Comm comm = MPI_Comm_f2c(number);

    return comm == (MPI_Comm)0 ? MPI_COMM_NULL : comm;
}
