"""Runs the programs of this build: LOCKSTEP_BINARY_DIR is the folder in which they lie."""

import json
import os
import subprocess
from pathlib import Path

BINARIES = Path(os.environ["LOCKSTEP_BINARY_DIR"])


def lockstep(*arguments):
    """Runs `lockstep` and returns its last line as JSON; raises with what it said if it fails."""
    done = subprocess.run([BINARIES / "lockstep", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def weight_values(paths):
    """Returns what weight_values.cpp says of each file."""
    lines = "".join(f"{path}\n" for path in paths)
    done = subprocess.run([BINARIES / "weight_values"], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]
