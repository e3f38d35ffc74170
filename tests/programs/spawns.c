/* spawns: processes that have a session start others in the same prefix directory, which must not begin there.
 * Prints "FAIL what" where something is otherwise than it should be, and "DONE" at the end.
 */
#include <mpi.h>

#include "scr.h"

#include <stdio.h>

static void expect(int good, const char *what)
{
    if (!good)
        printf("FAIL %s\n", what);
}

int main(int argc, char **argv)
{
    MPI_Comm parents, children;
    int rank, refused, of_rank;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_get_parent(&parents);
    if (parents != MPI_COMM_NULL) {
        refused = SCR_Init() == SCR_ERR_CONFIG;
        MPI_Reduce(&refused, NULL, 1, MPI_INT, MPI_MIN, 0, parents);
        MPI_Comm_disconnect(&parents);
        return MPI_Finalize();
    }
    expect(SCR_Init() == SCR_SUCCESS, "the parents begin");
    MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE);
    of_rank = rank == 0 ? MPI_ROOT : MPI_PROC_NULL;
    MPI_Reduce(NULL, &refused, 1, MPI_INT, MPI_MIN, of_rank, children);
    expect(rank != 0 || refused, "the children are refused");
    MPI_Comm_disconnect(&children);
    expect(SCR_Finalize() == SCR_SUCCESS, "the parents end");
    if (rank == 0)
        printf("DONE\n");
    return MPI_Finalize();
}
