#!/usr/bin/env python3
"""Seeded faults: what the tests find of the faults that tests/seeded.patch puts into a copy of the sources.

    scripts/seeded.py run [SEED:MOST[:FAULT]]   counts, for each fault or one, what finds it
    scripts/seeded.py check                     whether the patch still fits the sources
    scripts/seeded.py copy                      writes the copy, target/seeded, without building it
    scripts/seeded.py patch                     makes the patch from the copy, after it was changed there

The copy is a worktree of what is committed and what is changed in tracked files. The variable SCR_TEST_FAULT activates a
fault in a process of it. Each meets the checks that try everything (the small world, the holdings), and then random
histories of jobs, at most MOST (3000) from the seed SEED (1) on.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PATCH = ROOT / "tests" / "seeded.patch"
COPY = ROOT / "target" / "seeded"
FITS_NO_MORE = """tests/seeded.patch does not fit the sources any more. `scripts/seeded.py copy` merges both in
target/seeded, as far as possible. Mend the rest there; `scripts/seeded.py patch` then makes the patch anew."""
# The checks that try everything: the crate, its folder, and the names of the tests.
CHECKS = [("scr_prefix", "core/prefix", ["small_world", "the_window_leaves_", "containers_go_only_for_"]),
          ("scr_core", "core", ["holdings::", "no_copy_counts_"])]
# So many histories must pass without a fault.
WITHOUT_ANY = 10


def git(*args, folder=COPY, check=True):
    return subprocess.run(["git", "-C", folder, *args], check=check, text=True, stdout=subprocess.PIPE)


def check():
    fits = git("apply", "--check", "-C1", PATCH, folder=ROOT, check=False).returncode == 0
    return None if fits else FITS_NO_MORE


def copy():
    changed = git("stash", "create", folder=ROOT).stdout.strip() or git("rev-parse", "HEAD", folder=ROOT).stdout.strip()
    if (COPY / ".git").exists():
        # Only what differs is written, and compiled again.
        git("reset", "--quiet", "--hard", changed)
    else:
        git("worktree", "add", "--quiet", "--force", "--detach", COPY, changed, folder=ROOT)
    for way in ["--index -C1", "--3way", "--reject"]:
        if git("apply", *way.split(), PATCH, check=False).returncode == 0:
            return None
        if git("status", "--porcelain", "--untracked-files=no").stdout:
            break
    return FITS_NO_MORE


def patch():
    git("add", "--all", "--", ".", ":!*.rej")
    if git("diff", "--cached", "--check", "HEAD", check=False).returncode:
        return "there are conflicts left in target/seeded"
    PATCH.write_text(git("diff", "--cached", "--no-color", "--no-ext-diff", "HEAD").stdout)


def build():
    """The test programs, by crate or name."""
    command = "test --no-run --locked --quiet --profile torture -p scr-prefix -p scr-core --lib --test jobs --message-format json"
    built = subprocess.run([os.environ.get("CARGO", "cargo"), *command.split()], cwd=COPY, check=True, text=True,
                           stdout=subprocess.PIPE)
    messages = [json.loads(line) for line in built.stdout.splitlines()]
    return {message["target"]["name"]: message["executable"] for message in messages if message.get("executable")}


def environment(fault, **more):
    return {**os.environ, **more, **({"SCR_TEST_FAULT": fault} if fault else {})}


def found_by_checks(programs, fault):
    """The test that fails first, and the promise that is broken."""
    for crate, folder, names in CHECKS:
        ran = subprocess.run([programs[crate], *names], cwd=COPY / folder, env=environment(fault), text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        if ran.returncode:
            promise = re.search(r"^broken: (\w+):", ran.stdout, re.MULTILINE)
            test = re.search(r"^test \S*?(\w+) \.\.\. FAILED$", ran.stdout, re.MULTILINE)
            return f"small world: {promise[1]}" if promise else test[1] if test else "a crash"
    return None


def histories_to_find(programs, fault, seed, most):
    """So many histories it takes, or None."""
    ran = subprocess.run([programs["jobs"], "histories::no_", "--nocapture"], cwd=COPY / "core", text=True,
                         env=environment(fault, SCR_TEST_HISTORIES=f"{seed}:{most}"), stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    failed = re.search(r"^the history of seed (\d+) fails", ran.stdout, re.MULTILINE)
    return int(failed[1]) - seed + 1 if failed else None


def run(asked="1:3000"):
    seed, most, *only = asked.split(":")
    seed, most = int(seed), int(most)
    wrong = copy()
    if wrong:
        return wrong
    programs = build()
    if found_by_checks(programs, None) or histories_to_find(programs, None, seed, WITHOUT_ANY):
        return "tests fail without a fault"
    faults = re.findall(r'^\+    (\w+): "(.*)",$', PATCH.read_text(), re.MULTILINE)
    faults = [fault for fault in faults if not only or fault[0] in only]
    print("| fault | what goes wrong | a check of everything | histories |\n|---|---|---|---:|")
    checks, missed = 0, []
    for fault, what in faults:
        check = found_by_checks(programs, fault)
        histories = histories_to_find(programs, fault, seed, most)
        print(f"| `{fault}` | {what} | {check or ''} | {histories or f'not in {most}'} |", flush=True)
        checks += check is not None
        missed += [] if histories or most == 0 and check else [fault]
    print(f"{len(faults)} faults: {checks} found by a check of everything, {len(faults) - len(missed)} by histories")
    return f"not found: {', '.join(missed)}" if missed and most else None


if __name__ == "__main__":
    commands = {"run": run, "check": check, "copy": copy, "patch": patch}
    if len(sys.argv) < 2 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    sys.exit(commands[sys.argv[1]](*sys.argv[2:]))
