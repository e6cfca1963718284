"""Starts the processes of the tests of ranks in this folder."""

import multiprocessing
import re
import sys
import tempfile
from pathlib import Path


def names_of(tests, pattern):
    """Returns the tests whose names have this pattern; ends the program where none has."""
    names = [name for name in tests if re.search(pattern, name)]
    if not names:
        sys.exit(f"no test has {pattern} in its name")
    return names


def run(body, names, size):
    """Runs body(rank, names, folder) in each of as many processes; returns their exit codes and what they wrote to failures-*."""
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        processes = [spawn.Process(target=body, args=(rank, names, folder)) for rank in range(size)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        failures = "".join(path.read_text() for path in sorted(Path(folder).glob("failures-*")))
    return [process.exitcode for process in processes], failures
