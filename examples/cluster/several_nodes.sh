#!/usr/bin/env bash
# several_nodes.sh HOST,HOST... [FLAGS]: hosts that ssh reaches without a password, with the same folder and the same
# programs. The first is host 0, whose output is shown as it is.
set -euo pipefail
hosts=${1:?usage: several_nodes.sh HOST,HOST... [FLAGS of lockstep train]}
shift
exec lockstep hosts --names "$hosts" --max-restarts 3 -- \
  lockstep train --nproc-per-node "${RANKS_PER_NODE:-auto}" --model mnist-small --epochs 3 --output runs/several-nodes \
  --resume auto "$@"
