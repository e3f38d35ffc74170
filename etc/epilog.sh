#!/bin/sh
# An epilog for Slurm: removes what the job has left on this node. Slurm runs it as root, with almost no environment.
# In slurm.conf: Epilog=@SCR@/share/scr/slurm/epilog.sh
# A dataset that is in cache only is kept, and named in the log of slurmd.
[ -n "$SLURM_JOB_ID" ] || exit 0
# The tree that this script lies in, wherever it was moved; a copy of the script uses the tree that it lies beside, or else the one
# that it came from. Without one the node would fill, so it is drained.
here=$(cd "$(dirname "$0")" && pwd)
for tree in "$here/../../.." "$here/.." "$here" @SCR@; do
    scr=$tree/bin/scr
    [ ! -x "$scr" ] || break
done
[ -x "$scr" ] || { echo "epilog: there is no $scr: name the tree of scr in $0" >&2; exit 1; }
cd / || exit 0
"$scr" clean --all-users --allocation "$SLURM_JOB_ID" --ended
exit 0 # any other code drains the node
