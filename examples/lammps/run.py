"""Runs LAMMPS with scr: it restarts from the newest checkpoint, on any number of ranks, or begins with the first script.

    mpirun -n 4 python3 run.py melt.create melt.settings --steps 400 --every 50 --log melt.log

The first script makes the system. The second one has what a restart file does not contain: fixes, computes, output. With
--each, each rank writes a restart file of its own. LAMMPS reads and writes the files itself, at the paths that scr gives.
"""

import argparse
import os
import signal
import sys
import tempfile
import traceback

from mpi4py import MPI

import lammps
import scr

comm = MPI.COMM_WORLD


def say(text):
    if comm.rank == 0:
        print(f"lammps: {text}", flush=True)


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("create", help="the script that makes the system")
    parser.add_argument("settings", help="the script for each run")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--every", type=int, default=50, help="a checkpoint after so many steps")
    parser.add_argument("--each", action="store_true", help="one restart file for each rank")
    parser.add_argument("--log", default="log.lammps")
    parser.add_argument("--die-at", type=int, default=-1, help="the last rank dies at this step")
    return parser.parse_args()


def save(engine, step, each):
    """A checkpoint that fails is no reason to stop: the run goes on without it."""
    name = f"lammps.{step:06d}"
    try:
        with scr.output(name) as dataset:
            if each:
                # LAMMPS puts the number of the rank, and on rank 0 also `base', in the place of %.
                path = dataset.route(f"{name}/restart.{comm.rank}").with_name("restart.%")
                if comm.rank == 0:
                    dataset.route(f"{name}/restart.base")
            else:
                # Rank 0 alone opens the file.
                path = dataset.route(f"{name}/restart") if comm.rank == 0 else "restart"
            engine.command(f'write_restart "{path}"')
        say(f"checkpoint {name} is complete")
    except (scr.Error, OSError) as error:
        print(f"lammps: rank {comm.rank}: {error}", file=sys.stderr, flush=True)


def numbers(files):
    """The files of so many that LAMMPS opens on this rank: every Mth one, or that of a group of ranks."""
    rank, ranks = comm.rank, comm.size
    return range(rank, files, ranks) if ranks <= files else [rank * files // ranks]


def readable(checkpoint, folder):
    """The path for read_restart. The files of several ranks may lie in several folders: links bring them together."""
    path = f"{checkpoint.name}/restart"
    if path in checkpoint.files:
        return checkpoint.route(path) if comm.rank == 0 else "restart"
    for end in [*numbers(checkpoint.ranks), *(["base"] if comm.rank == 0 else [])]:
        os.symlink(checkpoint.route(f"{path}.{end}"), f"{folder}/restart.{end}")
    return f"{folder}/restart.%"


def restart(engine):
    """Lets LAMMPS read the newest checkpoint. Returns its step, or None if there is none."""
    while scr.have_restart():
        with scr.restart() as checkpoint, tempfile.TemporaryDirectory() as folder:
            path = readable(checkpoint, folder)
            engine.command("clear")
            engine.command(f'read_restart "{path}"')
        if checkpoint.complete:
            step = int(checkpoint.name.removeprefix("lammps."))
            say(f"restarted from {checkpoint.name} on {comm.size} ranks")
            return step
    return None


def main():
    given = parse()
    scr.init({"SCR_CHECKPOINT_INTERVAL": 1, "SCR_RESTART_OTHER_RANKS": 1})
    engine = lammps.lammps(cmdargs=["-screen", "none", "-log", given.log], comm=comm)
    step = restart(engine)
    if step is None:
        engine.file(given.create)
        step = 0
    engine.file(given.settings)
    while step < given.steps:
        many = min(given.every, given.steps - step)
        if step <= given.die_at < step + many:
            engine.command(f"run {given.die_at - step}")
            if comm.rank == comm.size - 1:
                os.kill(os.getpid(), signal.SIGKILL)
        engine.command(f"run {many}")
        step += many
        if scr.need_checkpoint():
            save(engine, step, given.each)
        if scr.should_exit():
            break
    engine.close()
    scr.finalize()


if __name__ == "__main__":
    try:
        main()
    except Exception:
        traceback.print_exc()
        comm.Abort(1)  # the other ranks would wait for this one
