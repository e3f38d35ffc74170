/* coupled: the other program of a coupled job, which does not use SCR. It takes part in the split of MPI_COMM_WORLD alone. */
#include <mpi.h>

int main(int argc, char **argv)
{
    MPI_Comm own;
    int rank, sum = 1;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, 2, rank, &own);
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, own);
    MPI_Comm_free(&own);
    return MPI_Finalize();
}
