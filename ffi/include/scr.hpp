/* scr.hpp: the C++ interface of the scr checkpoint/restart runtime. C++17; over scr.h and libscr.so alone.
 *
 * A phase is an object. An scr::Output that goes out of scope without complete(), as when an exception passes, ends as
 * invalid on all ranks, so a checkpoint that was cut short never counts. An scr::Restart does so as well, unless an
 * exception passes: that is a fault of the program, for which no good checkpoint must be given up. It leaves the restart
 * open on this rank. The other ranks wait, so the exception must end the job, as one that nobody catches does.
 * Calls that fail throw scr::Error, whose what() is the library's own message. All are collective over
 * MPI_COMM_WORLD, or the communicator that the scr::Library was given, apart from route() and the ranks and files of a Restart.
 */
#ifndef SCR_HPP
#define SCR_HPP

#include "scr.h"

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

/* SCR_Config with a code, for this interface alone; applications call scr::config. */
extern "C" int scr_config_with_code(const char *line, char **value);

namespace scr {

/* A call that failed: the code of scr.h, and the library's message. */
class Error : public std::runtime_error {
public:
    explicit Error(int code) : std::runtime_error(SCR_Last_error()), code_(code) {}
    int code() const noexcept { return code_; }

private:
    int code_;
};

namespace detail {
inline void check(int code)
{
    if (code != SCR_SUCCESS)
        throw Error(code);
}

inline std::filesystem::path route(const std::filesystem::path &name)
{
    char path[SCR_MAX_FILENAME];
    check(SCR_Route_file(name.c_str(), path));
    return path;
}

/* What becomes of a phase that an exception passes. */
enum class OnException { end_as_invalid, leave_open };

/* A phase, which ends once. */
class Phase {
public:
    Phase(const Phase &) = delete;
    Phase &operator=(const Phase &) = delete;

    /* The path at which to write or read the file. Local. */
    std::filesystem::path route(const std::filesystem::path &name) const
    {
        require_open();
        return detail::route(name);
    }

protected:
    Phase(int (*end)(int), OnException on_exception) : end_(end), on_exception_(on_exception) {}
    ~Phase()
    {
        const bool passes = std::uncaught_exceptions() > exceptions_;
        if (end_ != nullptr && !(passes && on_exception_ == OnException::leave_open))
            end_(0);
    }
    Phase(Phase &&other) noexcept : end_(std::exchange(other.end_, nullptr)), on_exception_(other.on_exception_) {}
    Phase &operator=(Phase &&) = delete;

    void require_open() const
    {
        if (end_ == nullptr)
            throw std::logic_error("scr: this object has completed its phase, or was moved from");
    }

    int finish(bool valid)
    {
        require_open();
        return std::exchange(end_, nullptr)(valid ? 1 : 0);
    }

private:
    int (*end_)(int);
    OnException on_exception_;
    int exceptions_ = std::uncaught_exceptions();
};
} // namespace detail

/* Properties of a dataset. */
enum class Flags { none = SCR_FLAG_NONE, checkpoint = SCR_FLAG_CHECKPOINT, output = SCR_FLAG_OUTPUT };

constexpr Flags operator|(Flags one, Flags other)
{
    return static_cast<Flags>(static_cast<int>(one) | static_cast<int>(other));
}

/* A dataset being written. */
class Output : public detail::Phase {
public:
    explicit Output(const std::string &name, Flags flags = Flags::checkpoint)
        : Phase(begin(name, flags), detail::OnException::end_as_invalid)
    {
    }

    /* Ends the dataset. It throws unless `valid` is true on all ranks and the dataset is safe. */
    void complete(bool valid = true) { detail::check(finish(valid)); }

private:
    using End = int (*)(int);

    static End begin(const std::string &name, Flags flags)
    {
        detail::check(SCR_Start_output(name.c_str(), static_cast<int>(flags)));
        return SCR_Complete_output;
    }
};

/* A checkpoint being read. */
class Restart : public detail::Phase {
public:
    Restart() : Restart(begin()) {}

    const std::string &name() const noexcept { return name_; }

    /* How many ranks wrote it. With SCR_RESTART_OTHER_RANKS=1 it may be another number. Local. */
    int ranks() const
    {
        require_open();
        int n = 0;
        detail::check(SCR_Restart_ranks(&n));
        return n;
    }

    /* The names of the files that one of them wrote: `route` takes each on every rank. Local. */
    std::vector<std::string> files(int rank) const
    {
        require_open();
        int count = 0;
        detail::check(SCR_Restart_files(rank, &count));
        std::vector<std::string> names;
        for (int i = 0; i < count; i++) {
            char name[SCR_MAX_FILENAME] = "";
            detail::check(SCR_Restart_file(rank, i, name));
            names.emplace_back(name);
        }
        return names;
    }

    /* Ends the restart: whether all ranks have read it. If not, the next older checkpoint is loaded. */
    bool complete(bool valid = true) { return finish(valid) == SCR_SUCCESS; }

private:
    explicit Restart(std::string name)
        : Phase(SCR_Complete_restart, detail::OnException::leave_open), name_(std::move(name))
    {
    }

    static std::string begin()
    {
        char name[SCR_MAX_FILENAME] = "";
        detail::check(SCR_Start_restart(name));
        return name;
    }

    std::string name_;
};

/* A run under the library, from SCR_Init to finalize(); between MPI_Init and MPI_Finalize. One at a time. */
class Library {
public:
    Library() { detail::check(SCR_Init()); }
#ifdef MPI_VERSION /* where mpi.h was included before */
    /* For the processes of this communicator. */
    explicit Library(MPI_Comm comm) { detail::check(SCR_Init_comm(comm)); }

    /* Goes on after processes have died; new ones make a Library of the same communicator. An Output or a Restart must have ended
     * before, by an exception for instance. */
    void recover(MPI_Comm newcomm) { detail::check(SCR_Recover(newcomm)); }
#endif
    Library(const Library &) = delete;
    Library &operator=(const Library &) = delete;

    /* Flushes what is due and records that the job has finished; throws where a dataset could not be flushed. A
     * program that leaves without it, as with an error, is started again. */
    void finalize() { detail::check(SCR_Finalize()); }

    /* The name of the checkpoint that a Restart would read; none where no checkpoint is left. */
    std::optional<std::string> have_restart() const
    {
        int flag = 0;
        char name[SCR_MAX_FILENAME] = "";
        detail::check(SCR_Have_restart(&flag, name));
        return flag ? std::optional<std::string>(name) : std::nullopt;
    }

    bool need_checkpoint() const { return ask(SCR_Need_checkpoint); }
    bool should_exit() const { return ask(SCR_Should_exit); }

    void current(const std::string &name) { detail::check(SCR_Current(name.c_str())); }
    void drop(const std::string &name) { detail::check(SCR_Drop(name.c_str())); }
    void remove(const std::string &name) { detail::check(SCR_Delete(name.c_str())); }

private:
    static bool ask(int (*question)(int *))
    {
        int flag = 0;
        detail::check(question(&flag));
        return flag != 0;
    }
};

/* Sets a parameter ("NAME=value"), unsets it ("NAME="), both before Library, or gives its value ("NAME"). */
inline std::optional<std::string> config(const std::string &line)
{
    char *value = nullptr;
    detail::check(scr_config_with_code(line.c_str(), &value));
    if (value == nullptr)
        return std::nullopt;
    std::string copy = value;
    std::free(value);
    return copy;
}

/* The version of the library. */
inline std::string version()
{
    return SCR_Get_version();
}

} // namespace scr

#endif /* SCR_HPP */
