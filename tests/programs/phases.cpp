/* phases MODE: what becomes of datasets and of the job where an exception passes. All ranks do the same unless a line says
 * otherwise. An exception that reaches main ends the program with 1, in an orderly way, as a careful program does.
 *
 *   fail    writes checkpoint `one`, begins `cut` and drops it by an exception on rank 1, writes `two`, and throws
 *   throw   throws while it reads a checkpoint
 *   read    reads the checkpoint, uses objects wrongly, begins again with the world, and finalizes; first with a communicator of its own
 */
#include <mpi.h>

#include "scr.hpp"

#include <fstream>
#include <iostream>
#include <sstream>

namespace {

int rank;

std::string file_of(const std::string &name)
{
    return name + "/rank_" + std::to_string(rank);
}

/* One write, so that lines of ranks do not mix. */
void say(const std::string &line)
{
    std::cout << line + "\n" << std::flush;
}

/* Whether `call` is refused as a mistake of the program. */
template <typename Call> bool is_mistake(Call call)
{
    try {
        call();
    } catch (const std::logic_error &) {
        return true;
    }
    return false;
}

void write(const std::string &name, int failing_rank)
{
    try {
        scr::Output output(name);
        std::ofstream(output.route(file_of(name))) << name;
        if (rank == failing_rank)
            throw std::runtime_error("this rank cannot write");
        output.complete();
        say("WROTE " + name);
    } catch (const std::exception &) {
        say("CUT " + name);
    }
}

void read(bool fails)
{
    scr::Restart restart;
    if (fails)
        throw std::runtime_error("a fault of the program");
    std::ostringstream found;
    found << std::ifstream(restart.route(file_of(restart.name()))).rdbuf();
    scr::Restart moved = std::move(restart);
    const bool refused = is_mistake([&] { restart.complete(); });
    const bool listed = moved.ranks() == 2 && moved.files(rank) == std::vector<std::string>{file_of(moved.name())};
    const bool valid = moved.complete(found.str() == moved.name() && listed);
    if (refused && is_mistake([&] { moved.complete(); }) && is_mistake([&] { (void)moved.route("any"); }) &&
        is_mistake([&] { (void)moved.files(0); }))
        say("MISTAKES REFUSED");
    if (valid)
        say("READ " + moved.name());
}

void refused_setting()
{
    try {
        scr::config("SCR_FLUSHH=1");
    } catch (const scr::Error &error) {
        say("CONFIG " + std::to_string(error.code()) + " " + error.what());
    }
    scr::config("SCR_RESTART_OTHER_RANKS=1");
    scr::config("SCR_FLUSH=7");
    say("SCR_FLUSH=" + scr::config("SCR_FLUSH").value_or("nothing"));
}

/* All ranks, in a communicator that is freed at once. */
scr::Library own_communicator()
{
    struct Own {
        MPI_Comm comm;
        Own() { MPI_Comm_dup(MPI_COMM_WORLD, &comm); }
        ~Own() { MPI_Comm_free(&comm); }
    } own;

    return scr::Library(own.comm);
}

void run(const std::string &mode)
{
    refused_setting();
    scr::Library library = mode == "read" ? own_communicator() : scr::Library();
    if (mode == "fail") {
        write("one", -1);
        write("cut", 1);
        write("two", -1);
        throw std::runtime_error("the program fails");
    }
    if (library.have_restart())
        read(mode == "throw");
    if (mode == "read") {
        library.recover(MPI_COMM_WORLD);
        say("AGAIN " + library.have_restart().value_or("nothing"));
    }
    library.finalize();
}

} // namespace

int main(int argc, char **argv)
{
    int code = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    try {
        run(argc > 1 ? argv[1] : "");
    } catch (const std::exception &error) {
        say(std::string("FAILED ") + error.what());
        code = 1;
    }
    MPI_Finalize();
    return code;
}
