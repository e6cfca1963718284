#!/usr/bin/env python3
"""Shows what full sharding saves: two ranks train a model whose serial training needs 1.8 times the memory that each of them is allowed.

    benchmarks/limited_memory.py [--net gpt2-large] [--ratio 1.8] [--cgroup FOLDER]

Serial training runs without a limit for its peak, and again with the peak divided by the ratio, where the kernel must kill it; then two ranks
of fsdp run with that limit each. Limits are those of control groups for memory (cgroup v1 or v2) below the one of this process, or below
FOLDER: it takes the right to make them, as root has. One sequence of 16 tokens a rank, fp32, AdamW.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from array import array
from pathlib import Path

from commands import parser_of, setting

WORDS, LENGTH = 50257, 16
JOIN = 'echo $$ > "$0/${LOCAL_RANK:-0}/cgroup.procs" && exec "$@"'  # then all that the process uses counts there
MEGABYTE = 1e6


def parse_arguments():
    parser = parser_of(__doc__)
    parser.add_argument("--net", default="gpt2-large")
    parser.add_argument("--ratio", type=float, default=1.8)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--cgroup", metavar="FOLDER", help="of a control group whose members' memory can be limited")
    return parser.parse_args()


def own_cgroup():
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in ("memory", ""):
            return f"/sys/fs/cgroup/{controllers}{path}"
    sys.exit("this process is in no control group for memory; name one by --cgroup")


class Cgroup:
    """A control group for each rank, as long as this exists."""

    def __init__(self, above, ranks, limit):
        self.path = Path(tempfile.mkdtemp(prefix="lockstep-", dir=above))
        self.peaks = [0] * ranks
        self.members = [self.path / str(rank) for rank in range(ranks)]
        if (self.path / "cgroup.subtree_control").exists():
            (self.path / "cgroup.subtree_control").write_text("+memory")
        for member in self.members:
            member.mkdir()
            names = ("memory.max", "memory.limit_in_bytes")  # of cgroup v2 and v1
            if limit:
                next(member / name for name in names if (member / name).exists()).write_text(str(limit))

    def look(self):
        """Counts what cannot be dropped: memory of the process and shared memory that it touched first, without cached files."""
        for rank, member in enumerate(self.members):
            stat = dict(line.split() for line in (member / "memory.stat").read_text().splitlines())
            self.peaks[rank] = max(self.peaks[rank], int(stat.get("anon", stat.get("rss", 0))) + int(stat["shmem"]))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for group in [*self.members, self.path]:
            group.rmdir()


def draw(folder):
    draws = random.Random(1)
    for part, sequences in (("train", 16), ("test", 2)):
        Path(folder, f"{part}.bin").write_bytes(array("H", (draws.randrange(WORDS) for _ in range(sequences * LENGTH + 1))).tobytes())


def train(arguments, folder, way, ranks, limit=None):
    """Trains with a limit for each rank; returns the exit status, the errors, and the most memory of each rank."""
    with tempfile.TemporaryDirectory() as run, Cgroup(arguments.cgroup or own_cgroup(), ranks, limit) as cgroup:
        command = [] if way == "serial" else [arguments.lockstep, "run", "--nproc-per-node", str(ranks), "--no-python"]
        command += ["sh", "-c", JOIN, str(cgroup.path), arguments.lockstep, "train", "--model", arguments.net, "--parallel", way]
        command += ["--data", f"tokens:{folder}", "--num-classes", str(WORDS), "--sequence-length", str(LENGTH), "--batch-size", "1"]
        command += ["--opt", "adamw", "--lr", "1e-4", "--max-steps", str(arguments.steps), "--val-interval", "never"]
        command += ["--snapshot-interval", "never", "--progress", "none", "--output", f"{run}/run"]
        with open(f"{run}/errors", "w+", encoding="utf-8") as errors:
            process = subprocess.Popen(command, env=dict(os.environ, OMP_NUM_THREADS="1"), stdout=errors, stderr=errors)
            while process.poll() is None:
                cgroup.look()
                time.sleep(0.02)
            errors.seek(0)
            return process.returncode, errors.read(), cgroup.peaks


def report(what, status, errors, peaks, limit=None):
    """Prints a row; returns whether the training ended well. One that failed for another reason than memory ends the benchmark."""
    if status not in (0, -signal.SIGKILL):
        sys.exit(f"{what} ended with {status}:\n{errors[-3000:]}")
    allowed = f"{limit / MEGABYTE:,.0f} MB each" if limit else "all"
    used = " and ".join(f"{peak / MEGABYTE:,.0f} MB" for peak in peaks)
    print(f"| {what} | {allowed} | {used} | {'trains' if status == 0 else 'killed'} |", flush=True)
    return status == 0


def main():
    arguments = parse_arguments()
    print(setting(arguments.net, "fp32, AdamW") + "\n\n| training | memory allowed | used at most | |\n|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        draw(folder)
        alone = train(arguments, folder, "serial", 1)
        report("serial", *alone)
        limit = int(alone[-1][0] / arguments.ratio)
        is_shown = not report("serial", *train(arguments, folder, "serial", 1, limit), limit)
        is_shown &= report("fsdp on 2 ranks", *train(arguments, folder, "fsdp", 2, limit), limit)
    sys.exit(0 if is_shown else "not shown")


if __name__ == "__main__":
    main()
