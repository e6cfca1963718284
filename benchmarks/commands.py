"""Runs the programs that a benchmark compares."""

import subprocess
import sys


def output_of(command):
    """Returns what a command prints; ends the benchmark with the last of its errors when it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stderr[-3000:]}")
    return done.stdout
