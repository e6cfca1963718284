#!/usr/bin/env bash
# A rank for each GPU of this host, or else for each core; started again up to three times when one dies.
exec lockstep train --nproc-per-node "${RANKS_PER_NODE:-auto}" --model mnist-small --epochs 3 --output runs/one-node \
  --resume auto "$@"
