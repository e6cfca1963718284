#!/usr/bin/env bash
# Trains on one device, without a launcher; flags are passed to the program.
#
#     scripts/train_single_device.sh --data cifar-100 --batch-size 128
#
# TRAIN is the program, if it is not build/train.
set -euo pipefail

exec "${TRAIN:-$(dirname "$0")/../build/train}" "$@"
