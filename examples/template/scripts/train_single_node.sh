#!/usr/bin/env bash
# Trains on the devices of one node, a rank on each; flags are passed to the program.
#
#     NPROC_PER_NODE=2 scripts/train_single_node.sh --data cifar-100 --batch-size 64
#
# NPROC_PER_NODE   ranks; auto: one for each GPU, or else for each core
# LAUNCHER         "lockstep run" or "torchrun"
# TRAIN            the program, if it is not build/train
#
# The batch is that of each rank: two ranks with 64 take the same steps as one with 128.
set -euo pipefail

read -r -a launcher <<<"${LAUNCHER:-lockstep run}"
exec "${launcher[@]}" --standalone --nproc-per-node "${NPROC_PER_NODE:-auto}" --no-python \
  "${TRAIN:-$(dirname "$0")/../build/train}" "$@"
