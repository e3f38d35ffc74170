/* heat2d in C++: the example heat2d.c, with scr.hpp.
 *
 * Each rank owns a block of rows of the plate and swaps its border rows with the two neighbours in every step. All of
 * SCR is in save, restart and main.
 *
 *   mpicxx -std=c++17 heat2d.cpp -o heat2d_cpp -lscr
 *   mpirun -n 4 ./heat2d_cpp SIZE STEPS EVERY RESULT [KILL_RANK KILL_STEP]
 */
#include "scr.hpp"

#include <csignal>
#include <cstdint>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <mpi.h>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

namespace {

int rank, ranks;

int first_row(int size, int r)
{
    return static_cast<int>(static_cast<long>(size) * r / ranks);
}

/* Cold everywhere, apart from two hot spots and one edge. */
double initial(int size, int row, int column)
{
    if (row == 0)
        return 100.0;
    if (std::abs(row - size / 3) < size / 10 && std::abs(column - size / 4) < size / 10)
        return 80.0;
    if (std::abs(row - 2 * size / 3) < size / 12 && std::abs(column - 3 * size / 5) < size / 8)
        return 60.0 + 0.25 * (column % 7);
    return 0.0;
}

struct Header {
    std::int32_t step, size, first, rows;
};

class Plate {
public:
    explicit Plate(int size)
        : size_(size), first_(first_row(size, rank)), rows_(first_row(size, rank + 1) - first_),
          now_(static_cast<std::size_t>(rows_ + 2) * static_cast<std::size_t>(size)), next_(now_)
    {
        for (int i = 0; i < rows_; i++)
            for (int j = 0; j < size; j++)
                at(now_, i + 1)[j] = initial(size, first_ + i, j);
    }

    /* Every inner point moves towards the mean of its four neighbours; the edges stay as they are. */
    void step()
    {
        swap_borders();
        for (int i = 1; i <= rows_; i++) {
            const double *above = at(now_, i - 1), *here = at(now_, i), *below = at(now_, i + 1);
            double *out = at(next_, i);
            std::copy(here, here + size_, out);
            if (first_ + i - 1 == 0 || first_ + i == size_)
                continue;
            for (int j = 1; j + 1 < size_; j++)
                out[j] = here[j] + 0.2 * (above[j] + below[j] + here[j - 1] + here[j + 1] - 4.0 * here[j]);
        }
        now_.swap(next_);
    }

    /* Writes this rank's rows; an error is an exception. */
    void save(const std::filesystem::path &path, int step)
    {
        std::ofstream file;
        file.exceptions(std::ios::failbit | std::ios::badbit);
        file.open(path, std::ios::binary);
        const Header header = {step, size_, first_, rows_};
        file.write(reinterpret_cast<const char *>(&header), sizeof header);
        file.write(reinterpret_cast<const char *>(at(now_, 1)), bytes());
        file.close(); /* before the dataset is completed: until then some bytes may be in memory only */
    }

    /* Reads this rank's rows into the spare field; gives their step, or nothing where they cannot be read. */
    std::optional<int> load(const std::filesystem::path &path)
    {
        std::ifstream file(path, std::ios::binary);
        Header header = {};
        file.read(reinterpret_cast<char *>(&header), sizeof header);
        if (!file || header.size != size_ || header.first != first_ || header.rows != rows_)
            return std::nullopt;
        file.read(reinterpret_cast<char *>(at(next_, 1)), bytes());
        return file ? std::optional<int>(header.step) : std::nullopt;
    }

    /* Makes the loaded step the current one. */
    void use_loaded() { now_.swap(next_); }

    /* Gathers the rows at rank 0 in their order, and writes them. */
    void write_answer(const std::string &path)
    {
        if (rank > 0) {
            for (int i = 1; i <= rows_; i++)
                MPI_Send(at(now_, i), size_, MPI_DOUBLE, 0, 3, MPI_COMM_WORLD);
            return;
        }
        std::ofstream file(path, std::ios::binary);
        file.write(reinterpret_cast<const char *>(at(now_, 1)), bytes());
        std::vector<double> row(static_cast<std::size_t>(size_));
        for (int from = 1; from < ranks; from++) {
            for (int i = first_row(size_, from); i < first_row(size_, from + 1); i++) {
                MPI_Recv(row.data(), size_, MPI_DOUBLE, from, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                file.write(reinterpret_cast<const char *>(row.data()), size_ * static_cast<long>(sizeof(double)));
            }
        }
        std::cout << "heat2d: the answer is in " << path << std::endl;
    }

private:
    double *at(std::vector<double> &field, int row) { return field.data() + static_cast<std::ptrdiff_t>(row) * size_; }
    long bytes() const { return static_cast<long>(rows_) * size_ * static_cast<long>(sizeof(double)); }

    void swap_borders()
    {
        const int up = rank > 0 ? rank - 1 : MPI_PROC_NULL, down = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
        MPI_Sendrecv(at(now_, 1), size_, MPI_DOUBLE, up, 1, at(now_, rows_ + 1), size_, MPI_DOUBLE, down, 1,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Sendrecv(at(now_, rows_), size_, MPI_DOUBLE, down, 2, at(now_, 0), size_, MPI_DOUBLE, up, 2, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
    }

    int size_, first_, rows_;
    std::vector<double> now_, next_; /* rows_ + 2 rows: one border row above and one below */
};

std::string file_of(const std::string &name)
{
    return name + "/rank_" + std::to_string(rank) + ".heat";
}

/* A checkpoint that fails is no reason to stop: the run goes on without it. */
void save(Plate &plate, int step)
{
    std::ostringstream name;
    name << "heat." << std::setw(6) << std::setfill('0') << step;
    try {
        scr::Output output(name.str());
        plate.save(output.route(file_of(name.str())), step);
        output.complete();
        if (rank == 0)
            std::cout << "heat2d: checkpoint " << name.str() << " is complete" << std::endl;
    } catch (const std::exception &error) {
        std::cerr << "heat2d: rank " << rank << ": " << error.what() << std::endl;
    }
}

/* Loads the newest checkpoint that all ranks can read. Gives its step, or 0 if there is none. */
int restart(scr::Library &library, Plate &plate)
{
    while (library.have_restart()) {
        scr::Restart restart;
        std::optional<int> step;
        try {
            step = plate.load(restart.route(file_of(restart.name())));
        } catch (const scr::Error &) {
            /* This rank has no such file: it says so to the others below. */
        }
        if (!restart.complete(step.has_value()))
            continue;
        plate.use_loaded(); /* only now: all ranks have read the same checkpoint */
        if (rank == 0)
            std::cout << "heat2d: restarted from " << restart.name() << " at step " << *step << std::endl;
        return *step;
    }
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const auto number = [&](int at, int otherwise) { return at < argc ? std::stoi(argv[at]) : otherwise; };
    const int size = number(1, 512), steps = number(2, 500), every = number(3, 50);
    const int kill_rank = number(5, -1), kill_step = number(6, 0);
    {
        Plate plate(size);
        scr::config("SCR_CHECKPOINT_INTERVAL=" + std::to_string(every));
        scr::Library library;
        int step = restart(library, plate);
        bool stop = false;
        while (step < steps && !stop) {
            plate.step();
            step++;
            if (library.need_checkpoint()) {
                save(plate, step);
                stop = library.should_exit();
            }
            if (rank == kill_rank && step == kill_step)
                kill(getpid(), SIGKILL);
        }
        if (step == steps)
            plate.write_answer(argc > 4 ? argv[4] : "heat.out");
        library.finalize();
    }
    MPI_Finalize();
}
