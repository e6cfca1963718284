#!/usr/bin/env bash
# Trains on several nodes. Run it on each node at about the same time, each with its own NODE_RANK
# and all with the same flags, which are passed to the program:
#
#     NNODES=2 NODE_RANK=0 MASTER_ADDR=node0 scripts/train_several_nodes.sh --data cifar-100   # on node0
#     NNODES=2 NODE_RANK=1 MASTER_ADDR=node0 scripts/train_several_nodes.sh --data cifar-100   # on node1
#
# NNODES           nodes that take part
# NODE_RANK        which of them this is, from 0
# MASTER_ADDR      the address at which all others reach node 0
# MASTER_PORT      a free port of node 0 [29500]
# NPROC_PER_NODE   ranks on each node; auto: one for each GPU, or else for each core
# LAUNCHER         "lockstep run" or "torchrun"
# TRAIN            the program, if it is not build/train
#
# Where these are missing, the same names with PET_ before them are used, which schedulers and
# `lockstep hosts` set. --data must be on every node, --output in a folder that all of them share.
set -euo pipefail

read -r -a launcher <<<"${LAUNCHER:-lockstep run}"
exec "${launcher[@]}" \
  --nnodes "${NNODES:-${PET_NNODES:?say how many nodes take part: NNODES=2}}" \
  --node-rank "${NODE_RANK:-${PET_NODE_RANK:?say which node this is, from 0: NODE_RANK=0}}" \
  --master-addr "${MASTER_ADDR:-${PET_MASTER_ADDR:?name node 0: MASTER_ADDR=node0}}" \
  --master-port "${MASTER_PORT:-${PET_MASTER_PORT:-29500}}" \
  --nproc-per-node "${NPROC_PER_NODE:-auto}" --no-python \
  "${TRAIN:-$(dirname "$0")/../build/train}" "$@"
