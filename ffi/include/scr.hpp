/* scr.hpp: the C++ interface of the scr checkpoint/restart runtime. C++17; over scr.h and libscr.so alone.
 *
 * A phase is an object that ends what it began: an scr::Output or scr::Restart that goes out of scope without
 * complete(), as when an exception passes, ends as invalid on all ranks. So a checkpoint that was cut short never counts.
 * Calls that fail throw scr::Error, whose what() is the library's own message. All are collective over
 * MPI_COMM_WORLD, apart from route().
 */
#ifndef SCR_HPP
#define SCR_HPP

#include "scr.h"

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace scr {

/* A call that failed: the code of scr.h, and the library's message. */
/* SCR_Config with a code, for this interface alone; applications call scr::config. */
extern "C" int scr_config_with_code(const char *line, char **value);

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

/* A phase, which ends once. */
class Phase {
public:
    Phase(const Phase &) = delete;
    Phase &operator=(const Phase &) = delete;

    /* The path at which to write or read the file. Local. */
    std::filesystem::path route(const std::filesystem::path &name) const { return detail::route(name); }

protected:
    explicit Phase(int (*end)(int)) : end_(end) {}
    ~Phase()
    {
        if (end_ != nullptr)
            end_(0);
    }
    Phase(Phase &&other) noexcept : end_(std::exchange(other.end_, nullptr)) {}
    Phase &operator=(Phase &&) = delete;

    int finish(bool valid) { return std::exchange(end_, nullptr)(valid ? 1 : 0); }

private:
    int (*end_)(int);
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
    explicit Output(const std::string &name, Flags flags = Flags::checkpoint) : Phase(begin(name, flags)) {}

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

    /* Ends the restart: whether all ranks have read it. If not, the next older checkpoint is loaded. */
    bool complete(bool valid = true) { return finish(valid) == SCR_SUCCESS; }

private:
    explicit Restart(std::string name) : Phase(SCR_Complete_restart), name_(std::move(name)) {}

    static std::string begin()
    {
        char name[SCR_MAX_FILENAME] = "";
        detail::check(SCR_Start_restart(name));
        return name;
    }

    std::string name_;
};

/* A run under the library, from SCR_Init to SCR_Finalize; between MPI_Init and MPI_Finalize. */
class Library {
public:
    Library() { detail::check(SCR_Init()); }
    Library(const Library &) = delete;
    Library &operator=(const Library &) = delete;
    ~Library()
    {
        if (running_)
            SCR_Finalize();
    }

    /* Shuts down before the end of the scope, and throws where a dataset could not be flushed. */
    void finalize()
    {
        running_ = false;
        detail::check(SCR_Finalize());
    }

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

    bool running_ = true;
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
