#!/bin/sh
# A prolog for Slurm: removes what dead allocations have left on this node. Slurm runs it as root, with almost no environment.
# In slurm.conf: Prolog=@SCR@/share/scr/slurm/prolog.sh
cd / || exit 0
PATH=$PATH:/usr/bin:/bin:/usr/local/bin
export PATH # squeue says which allocations are alive
@SCR@/bin/scr clean --all-users --dead
exit 0 # any other code drains the node
