"""The Python interface of the scr checkpoint/restart runtime.

A thin layer over ``libscr.so``, without a build step. Every function needs a running MPI and is collective over
``MPI_COMM_WORLD``, or the communicator that ``init`` was given, apart from ``route_file``, the ``restart_*`` functions,
``config``, ``version`` and ``last_error``::

    from mpi4py import MPI
    import scr

    scr.init()
    step = 0
    while scr.have_restart():
        with scr.restart() as checkpoint:
            step = load(checkpoint.route(f"{checkpoint.name}/rank_{rank}.npy"))
        if checkpoint.complete:
            break
        step = 0
    ...
    with scr.output(f"step.{step}") as dataset:
        save(dataset.route(f"step.{step}/rank_{rank}.npy"))
    ...
    scr.finalize()

The names of the plain functions are those of C SCR's module: ``init``, ``finalize``, ``start_output``, ``route_file``
and so on. A failed call raises ``scr.Error``, a ``RuntimeError`` with the library's own message and its ``code``.
"""

import ctypes
import os
import pathlib
from typing import TYPE_CHECKING, Iterable, List, Mapping, Optional, Tuple, Type, Union

if TYPE_CHECKING:
    from mpi4py.MPI import Comm as _Comm

__all__ = [
    "Error", "FLAG_NONE", "FLAG_CHECKPOINT", "FLAG_OUTPUT", "MAX_FILENAME", "Output", "Restart", "RouteError",
    "complete_output", "complete_restart", "config", "current", "delete", "drop", "finalize", "have_restart", "init",
    "last_error", "need_checkpoint", "output", "restart", "restart_files", "restart_ranks", "route_file", "should_exit",
    "start_output", "start_restart", "version",
]

#: Version of this module; ``version`` returns that of the library.
__version__ = "1.0.0"

#: Properties of a dataset, to be combined with ``|``.
FLAG_NONE = 0
FLAG_CHECKPOINT = 1  #: the job can restart from it
FLAG_OUTPUT = 2  #: it must reach the prefix directory
#: Longest path that the library gives, with its terminating null.
MAX_FILENAME = 1024

_SUCCESS = 0

PathLike = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


class Error(RuntimeError):
    """A call that failed. Its text is the library's own; ``code`` is the number of ``scr.h``."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


class RouteError(Error):
    """``route`` has no path for a file: on a restart, this rank has not written such a file, or it cannot be read."""


# ---- Start and end ----


def init(params: Union[None, str, Iterable[str], Mapping[str, object]] = None, comm: Optional["_Comm"] = None) -> None:
    """Starts the library, after MPI was initialized. After ``finalize`` it starts it again.

    ``params`` are settings to make before: a line for ``config``, several of them, or a mapping of names to values,
    where ``None`` unsets. They hold until ``finalize``.

    ``comm`` is a communicator of mpi4py, all of whose processes call this; without it, all processes do.
    """
    if params is None:
        lines: Iterable[str] = []
    elif isinstance(params, str):
        lines = [params]
    elif isinstance(params, Mapping):
        lines = [f"{name}={'' if value is None else value}" for name, value in params.items()]
    else:
        lines = params
    for line in lines:
        config(str(line))
    # Fortran's handle is a number under every MPI.
    _check(_lib().SCR_Init() if comm is None else _lib().scr_init_comm_of_fortran(comm.py2f()))


def recover(comm: "_Comm") -> None:
    """Goes on after processes have died, with a communicator of mpi4py of those that go on; new ones call ``init``.

    What was under way is dropped. Then all is as after ``init``, with the newest checkpoint to restart from.
    """
    _check(_lib().scr_recover_of_fortran(comm.py2f()))


def finalize() -> None:
    """Shuts the library down, before MPI is finalized. What is due is flushed."""
    _check(_lib().SCR_Finalize())


def config(line: str) -> Optional[str]:
    """Sets (``"NAME=value"``) or unsets (``"NAME="``) a parameter before ``init``, or gives its value (``"NAME"``)."""
    value = ctypes.c_void_p()
    _check(_lib().scr_config_with_code(os.fsencode(line), ctypes.byref(value)))
    if not value:
        return None
    try:
        return ctypes.string_at(value.value).decode(errors="surrogateescape")
    finally:
        _libc.free(value)


# ---- Output ----


class Output:
    """A dataset being written, for ``with``: see ``output``."""

    def __init__(self, name: str, flags: int) -> None:
        self.name = name
        self.flags = flags
        self.valid = True

    def route(self, name: PathLike) -> pathlib.Path:
        """The path at which to write this file. Local."""
        return pathlib.Path(os.fsdecode(route_file(name)))

    def fail(self) -> None:
        """This rank could not write its files: the dataset will not become complete on any rank."""
        self.valid = False

    def __enter__(self) -> "Output":
        start_output(self.name, self.flags)
        return self

    def __exit__(self, kind, error, trace) -> None:
        if kind is None and self.valid:
            _check(_lib().SCR_Complete_output(1))
        else:
            complete_output(False)


def output(name: str, flags: int = FLAG_CHECKPOINT) -> Output:
    """Writes a dataset within ``with``: it is complete at the end, unless an exception passed on some rank.

    Leaving the block raises ``Error`` where the dataset did not become complete.
    """
    return Output(name, flags)


def start_output(name: Optional[str], flags: int) -> None:
    """Begins a dataset. Without a name it is called after its number."""
    _check(_lib().SCR_Start_output(None if name is None else os.fsencode(name), int(flags)))


def complete_output(valid: bool) -> bool:
    """Ends it. ``valid``: this process wrote all its files. Returns whether it is complete on all processes."""
    return _lib().SCR_Complete_output(int(bool(valid))) == _SUCCESS


def route_file(name: PathLike) -> Union[str, bytes]:
    """The path at which to write or read a file: ``str``, or ``bytes`` where the name is."""
    buffer = ctypes.create_string_buffer(MAX_FILENAME)
    _check(_lib().SCR_Route_file(os.fsencode(name), buffer), RouteError)
    return buffer.value if isinstance(os.fspath(name), bytes) else os.fsdecode(buffer.value)


def need_checkpoint() -> bool:
    """Whether it is time for a checkpoint."""
    return _ask(_lib().SCR_Need_checkpoint)


# ---- Restart ----


class Restart:
    """A checkpoint being read, for ``with``: see ``restart``."""

    #: Its name.
    name: str = ""
    #: Whether all ranks have read it, once the block has ended.
    complete: bool = False

    def __init__(self, unreadable: Tuple[Type[BaseException], ...]) -> None:
        self.valid = True
        self.unreadable = unreadable

    @property
    def ranks(self) -> int:
        """How many ranks wrote it. With ``SCR_RESTART_OTHER_RANKS=1`` it may be another number. Local."""
        return restart_ranks()

    @property
    def files(self) -> List[str]:
        """The names of the files of all of them, each once: ``route`` takes each on every rank. Local."""
        return list(dict.fromkeys(name for rank in range(self.ranks) for name in self.files_of(rank)))

    def files_of(self, rank: int) -> List[str]:
        """The names of the files of one of them. Local."""
        return restart_files(rank)

    def route(self, name: PathLike) -> pathlib.Path:
        """The path at which to read this file. Local."""
        return pathlib.Path(os.fsdecode(route_file(name)))

    def fail(self) -> None:
        """This rank could not read its files: the next older checkpoint is loaded on all ranks."""
        self.valid = False

    def __enter__(self) -> "Restart":
        self.name = start_restart()
        return self

    def __exit__(self, kind, error, trace) -> bool:
        unreadable = kind is not None and (issubclass(kind, RouteError) or issubclass(kind, self.unreadable))
        # Any other exception is a fault of the program, for which no good checkpoint must be given up.
        if kind is None or unreadable:
            self.complete = complete_restart(kind is None and self.valid)
        return unreadable


def restart(unreadable: Tuple[Type[BaseException], ...] = (OSError, ValueError, EOFError)) -> Restart:
    """Reads the loaded checkpoint within ``with``; afterwards ``complete`` says whether all ranks have read it.

    A ``RouteError``, or an exception of one of the types in ``unreadable``, means that this rank could not read its
    files: the block ends, and ``have_restart`` gives the next older checkpoint. Any other exception passes and leaves
    the restart open on this rank. The other ranks then wait, so end the job with ``MPI.COMM_WORLD.Abort()``.
    """
    return Restart(unreadable)


def have_restart() -> Optional[str]:
    """The name of the checkpoint that can be restarted from, or ``None``."""
    flag, name = ctypes.c_int(0), ctypes.create_string_buffer(MAX_FILENAME)
    _check(_lib().SCR_Have_restart(ctypes.byref(flag), name))
    return os.fsdecode(name.value) if flag.value else None


def start_restart() -> str:
    """Begins to read the loaded checkpoint; returns its name."""
    name = ctypes.create_string_buffer(MAX_FILENAME)
    _check(_lib().SCR_Start_restart(name))
    return os.fsdecode(name.value)


def restart_ranks() -> int:
    """How many processes wrote the checkpoint that is being read. Local."""
    count = ctypes.c_int(0)
    _check(_lib().SCR_Restart_ranks(ctypes.byref(count)))
    return count.value


def restart_files(rank: int) -> List[str]:
    """The names of the files that one of them wrote, for ``route_file``. Local. Needs ``SCR_RESTART_OTHER_RANKS=1``."""
    count, names = ctypes.c_int(0), []
    _check(_lib().SCR_Restart_files(int(rank), ctypes.byref(count)))
    for number in range(count.value):
        name = ctypes.create_string_buffer(MAX_FILENAME)
        _check(_lib().SCR_Restart_file(int(rank), number, name))
        names.append(os.fsdecode(name.value))
    return names


def complete_restart(valid: bool) -> bool:
    """Ends it. ``valid``: this process has read its files. Returns whether all processes have."""
    return _lib().SCR_Complete_restart(int(bool(valid))) == _SUCCESS


# ---- Datasets and the rest ----


def current(name: str) -> None:
    """Says that the application has restarted from this dataset by itself."""
    _check(_lib().SCR_Current(os.fsencode(name)))


def drop(name: str) -> None:
    """Forgets the entry of a dataset in the index; its files stay."""
    _check(_lib().SCR_Drop(os.fsencode(name)))


def delete(name: str) -> None:
    """Deletes the files of a dataset, from the prefix directory and from the cache."""
    _check(_lib().SCR_Delete(os.fsencode(name)))


def should_exit() -> bool:
    """Whether the application should stop now."""
    return _ask(_lib().SCR_Should_exit)


def version() -> str:
    """The version of the library."""
    return _lib().SCR_Get_version().decode()


def last_error() -> str:
    """Why the last call that failed has failed; empty before the first."""
    return _lib().SCR_Last_error().decode(errors="replace")


# ---- The library ----

_libc = ctypes.CDLL(None)
_loaded: Optional[ctypes.CDLL] = None

_text, _flag = ctypes.c_char_p, ctypes.POINTER(ctypes.c_int)
#: What each function takes and gives.
_PROTOTYPES = {
    "SCR_Init": ([], ctypes.c_int),
    "scr_init_comm_of_fortran": ([ctypes.c_int], ctypes.c_int),
    "scr_recover_of_fortran": ([ctypes.c_int], ctypes.c_int),
    "SCR_Finalize": ([], ctypes.c_int),
    "scr_config_with_code": ([_text, ctypes.POINTER(ctypes.c_void_p)], ctypes.c_int),
    "SCR_Route_file": ([_text, _text], ctypes.c_int),
    "SCR_Need_checkpoint": ([_flag], ctypes.c_int),
    "SCR_Start_output": ([_text, ctypes.c_int], ctypes.c_int),
    "SCR_Complete_output": ([ctypes.c_int], ctypes.c_int),
    "SCR_Have_restart": ([_flag, _text], ctypes.c_int),
    "SCR_Start_restart": ([_text], ctypes.c_int),
    "SCR_Restart_ranks": ([_flag], ctypes.c_int),
    "SCR_Restart_files": ([ctypes.c_int, _flag], ctypes.c_int),
    "SCR_Restart_file": ([ctypes.c_int, ctypes.c_int, _text], ctypes.c_int),
    "SCR_Complete_restart": ([ctypes.c_int], ctypes.c_int),
    "SCR_Current": ([_text], ctypes.c_int),
    "SCR_Drop": ([_text], ctypes.c_int),
    "SCR_Delete": ([_text], ctypes.c_int),
    "SCR_Should_exit": ([_flag], ctypes.c_int),
    "SCR_Get_version": ([], _text),
    "SCR_Last_error": ([], _text),
}


def _lib() -> ctypes.CDLL:
    """The library, loaded at the first call: an import alone needs neither it nor MPI."""
    global _loaded
    if _loaded is None:
        _loaded = _load()
    return _loaded


def _load() -> ctypes.CDLL:
    tried = []
    for path in _candidates():
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            tried.append(str(error))
            continue
        for name, (arguments, result) in _PROTOTYPES.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, result
        return library
    raise ImportError("cannot load libscr.so; set SCR_DIR to the folder that scr is installed in: " + "; ".join(tried))


def _candidates() -> Iterable[str]:
    """Where the library may lie: where SCR_DIR says, in the tree that this file lies in or was installed from, or where
    the linker looks."""
    here = pathlib.Path(__file__).resolve()
    trees = [os.environ.get("SCR_DIR"), here.parents[3] if len(here.parents) > 3 else None]
    try:
        from _scr_tree import TREE

        trees.append(TREE)
    except ImportError:
        pass
    for tree in filter(None, trees):
        for folder in ("lib", "lib64"):
            path = pathlib.Path(tree, folder, "libscr.so")
            if path.is_file():
                yield str(path)
    yield "libscr.so"


def _check(code: int, error: Type[Error] = Error) -> None:
    if code != _SUCCESS:
        raise error(last_error(), code)


def _ask(question) -> bool:
    flag = ctypes.c_int(0)
    _check(question(ctypes.byref(flag)))
    return bool(flag.value)
