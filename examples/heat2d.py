"""heat2d in Python: the example heat2d.c, with the module scr, mpi4py and numpy.

Each rank owns a block of rows of the plate and swaps its border rows with the two neighbours in every step. All of SCR is
in save, restart and main.

    mpirun -n 4 python3 heat2d.py SIZE STEPS EVERY RESULT [KILL_RANK KILL_STEP]
"""

import os
import signal
import sys
import traceback

import numpy as np
from mpi4py import MPI

import scr

comm = MPI.COMM_WORLD
rank, ranks = comm.rank, comm.size


def first_row(size, r, of=ranks):
    return size * r // of


def initial(size, row, column):
    """Cold everywhere, apart from two hot spots and one edge."""
    if row == 0:
        return 100.0
    if abs(row - size // 3) < size // 10 and abs(column - size // 4) < size // 10:
        return 80.0
    if abs(row - 2 * size // 3) < size // 12 and abs(column - 3 * size // 5) < size // 8:
        return 60.0 + 0.25 * (column % 7)
    return 0.0


def new_plate(size):
    """This rank's rows, with one border row above and one below."""
    first, last = first_row(size, rank), first_row(size, rank + 1)
    plate = np.zeros((last - first + 2, size))
    plate[1:-1] = [[initial(size, row, column) for column in range(size)] for row in range(first, last)]
    return plate


def step_plate(plate):
    """Every inner point moves towards the mean of its four neighbours; the edges stay as they are."""
    up = rank - 1 if rank > 0 else MPI.PROC_NULL
    down = rank + 1 if rank + 1 < ranks else MPI.PROC_NULL
    comm.Sendrecv(plate[1], up, 1, plate[-1], down, 1)
    comm.Sendrecv(plate[-2], down, 2, plate[0], up, 2)
    begin = 2 if rank == 0 else 1
    end = -2 if rank == ranks - 1 else -1
    here = plate[begin:end, 1:-1]
    above, below = plate[begin - 1 : end - 1, 1:-1], plate[begin + 1 : (end + 1) or None, 1:-1]
    left, right = plate[begin:end, :-2], plate[begin:end, 2:]
    new = plate.copy()
    new[begin:end, 1:-1] = here + 0.2 * (above + below + left + right - 4.0 * here)
    return new


def save(plate, step):
    """A checkpoint that fails is no reason to stop: the run goes on without it."""
    name = f"heat.{step:06d}"
    try:
        with scr.output(name) as dataset:
            np.save(dataset.route(f"{name}/rank_{rank}.npy"), plate[1:-1])
        if rank == 0:
            print(f"heat2d: checkpoint {name} is complete", flush=True)
    except (scr.Error, OSError) as error:
        print(f"heat2d: rank {rank}: {error}", file=sys.stderr, flush=True)


def load_rows(checkpoint, size):
    """This rank's rows, from the files of those ranks that had them: another number may have written the checkpoint."""
    first, last, blocks = first_row(size, rank), first_row(size, rank + 1), []
    for r in range(checkpoint.ranks):
        begin, end = first_row(size, r, checkpoint.ranks), first_row(size, r + 1, checkpoint.ranks)
        if begin < last and end > first:
            rows = np.load(checkpoint.route(f"{checkpoint.name}/rank_{r}.npy"))
            blocks.append(rows[max(first - begin, 0) : last - begin])
    return np.concatenate(blocks)


def restart(plate):
    """Loads the newest checkpoint that all ranks can read. Returns its step, or 0 if there is none."""
    while scr.have_restart():
        with scr.restart() as checkpoint:
            rows = load_rows(checkpoint, plate.shape[1])
            if rows.shape != plate[1:-1].shape:
                checkpoint.fail()
        if checkpoint.complete:
            plate[1:-1] = rows
            step = int(checkpoint.name.removeprefix("heat."))
            if rank == 0:
                print(f"heat2d: restarted from {checkpoint.name} at step {step}", flush=True)
            return step
    return 0


def write_answer(plate, path):
    blocks = comm.gather(plate[1:-1])
    if rank == 0:
        np.concatenate(blocks).tofile(path)
        print(f"heat2d: the answer is in {path}", flush=True)


def main():
    given = [int(text) for text in sys.argv[1:4]] + [512, 500, 50][len(sys.argv[1:4]) :]
    size, steps, every = given
    kill_rank, kill_step = (int(text) for text in sys.argv[5:7]) if len(sys.argv) > 6 else (-1, 0)
    plate = new_plate(size)
    scr.init({"SCR_CHECKPOINT_INTERVAL": every, "SCR_RESTART_OTHER_RANKS": 1})
    step, stop = restart(plate), False
    while step < steps and not stop:
        plate = step_plate(plate)
        step += 1
        if scr.need_checkpoint():
            save(plate, step)
            stop = scr.should_exit()
        if rank == kill_rank and step == kill_step:
            os.kill(os.getpid(), signal.SIGKILL)
    if step == steps:
        write_answer(plate, sys.argv[4] if len(sys.argv) > 4 else "heat.out")
    scr.finalize()


if __name__ == "__main__":
    try:
        main()
    except Exception:
        traceback.print_exc()
        comm.Abort(1)  # the other ranks would wait for this one
