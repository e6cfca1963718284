#!/usr/bin/env bash
# mpirun.sh RANKS [FLAGS]: a rank for each process of Open MPI. MASTER_ADDR, the host of rank 0, is needed for several
# hosts (mpirun's own --host or --hostfile by MPIRUN_FLAGS), since mpirun does not tell it to the ranks.
set -euo pipefail
ranks=${1:?usage: mpirun.sh RANKS [FLAGS of lockstep train]}
shift
flags=(-n "$ranks")
[[ -z ${MASTER_ADDR:-} ]] || flags+=(-x MASTER_ADDR)
# shellcheck disable=SC2206 # several words
flags+=(${MPIRUN_FLAGS:-})
exec mpirun "${flags[@]}" lockstep train --model mnist-small --epochs 3 --output runs/mpirun --resume auto "$@"
