#!/usr/bin/env bash
# One rank on one device: this host's GPU if it has one, else its cores. Flags of `lockstep train` may follow.
exec lockstep train --model mnist-small --epochs 3 --output runs/one-device --resume auto "$@"
