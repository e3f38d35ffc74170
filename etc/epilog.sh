#!/bin/sh
# An epilog for Slurm: removes what the job has left on this node. Slurm runs it as root, with almost no environment.
# In slurm.conf: Epilog=@SCR@/share/scr/slurm/epilog.sh
# A dataset that is in cache only is kept, and named in the log of slurmd.
[ -n "$SLURM_JOB_ID" ] || exit 0
# The tree that this script lies in, wherever it was moved; a copy of the script uses the tree that it came from.
scr=${0%/*}/../../../bin/scr
[ -x "$scr" ] || scr=@SCR@/bin/scr
cd / || exit 0
"$scr" clean --all-users --allocation "$SLURM_JOB_ID" --ended
exit 0 # any other code drains the node
