#!/bin/sh
# A prolog for Slurm: removes what dead allocations have left on this node. Slurm runs it as root, with almost no environment.
# In slurm.conf: Prolog=@SCR@/share/scr/slurm/prolog.sh
# The tree that this script lies in, wherever it was moved; a copy of the script uses the tree that it came from.
scr=$(cd "$(dirname "$0")" && pwd)/../../../bin/scr
[ -x "$scr" ] || scr=@SCR@/bin/scr
cd / || exit 0
PATH=$PATH:/usr/bin:/bin:/usr/local/bin
export PATH # squeue says which allocations are alive
"$scr" clean --all-users --dead
exit 0 # any other code drains the node
