/* test_ckpt: writes a checkpoint and checks what it restarts from, with scr.hpp.
 *
 *   mpicxx -std=c++17 test_ckpt.cpp -o test_ckpt -lscr        mpirun -n 4 ./test_ckpt
 */
#include "scr.hpp"

#include <fstream>
#include <iostream>
#include <mpi.h>
#include <string>
#include <vector>

namespace {

int rank;

std::vector<int> values_of(int step)
{
    std::vector<int> values(1000);
    for (std::size_t i = 0; i < values.size(); i++)
        values[i] = step * 1000003 + rank * 1009 + static_cast<int>(i);
    return values;
}

std::string file_of(const std::string &name)
{
    return name + "/rank_" + std::to_string(rank) + ".ckpt";
}

bool has_values(const std::filesystem::path &path, int step)
{
    const std::vector<int> wanted = values_of(step);
    std::vector<int> found(wanted.size());
    std::ifstream file(path, std::ios::binary);
    file.read(reinterpret_cast<char *>(found.data()), static_cast<long>(found.size() * sizeof(int)));
    return file && found == wanted;
}

int restart(scr::Library &library)
{
    if (!library.have_restart())
        return 0;
    scr::Restart restart;
    const int step = std::stoi(restart.name().substr(5));
    const bool valid = has_values(restart.route(file_of(restart.name())), step);
    if (!restart.complete(valid))
        throw std::runtime_error("wrong bytes in " + restart.name());
    if (rank == 0)
        std::cout << "Restarted from " << restart.name() << "." << std::endl;
    return step;
}

void checkpoint(int step)
{
    const std::string name = "ckpt." + std::to_string(step);
    const std::vector<int> values = values_of(step);
    scr::Output output(name);
    {
        std::ofstream file;
        file.exceptions(std::ios::failbit | std::ios::badbit);
        file.open(output.route(file_of(name)), std::ios::binary);
        file.write(reinterpret_cast<const char *>(values.data()), static_cast<long>(values.size() * sizeof(int)));
    }
    output.complete();
    if (rank == 0)
        std::cout << "Completed " << name << "." << std::endl;
}

} // namespace

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    try {
        scr::Library library;
        checkpoint(restart(library) + 1);
        library.finalize();
        if (rank == 0)
            std::cout << "All was right." << std::endl;
    } catch (const std::exception &error) {
        std::cerr << "test_ckpt: rank " << rank << ": " << error.what() << std::endl;
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Finalize();
}
