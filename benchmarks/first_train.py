#!/usr/bin/env python3
"""Times a newcomer's first minutes: ./dev train in a fresh clone with an empty ccache, a second start, and one without bf16.

    benchmarks/first_train.py                    a clone in a temporary folder, removed afterwards
    benchmarks/first_train.py --folder DIR       a clone in DIR, which stays

Packages of Debian should be there (./dev setup), or their download is timed too. Nothing else should run: the machine's load is
printed, as are its processor and, at the end, the compiler (CXX=g++ takes another). The last run trains as on a processor that has
AVX2 but neither AVX-512 nor bf16 instructions, in float32.
"""

import argparse
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def timed(what, command, folder, **variables):
    """Runs a command, and prints its time and what its output says of phases and speed."""
    started = time.monotonic()
    done = subprocess.run(command, cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True)
    seconds = time.monotonic() - started
    if done.returncode != 0:
        raise SystemExit(f"{what}: exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    output = done.stdout + done.stderr
    phases = re.findall(r"^(?:setup|build) {2,}((?:\w+ [\d.]+ s(?:, )?)+)$", output, re.MULTILINE)
    speeds = [int(speed) for speed in re.findall(r"(\d+) samples/s", output)]
    precision = re.search(r"precision (.+)", output)
    print(f"{what:34} {seconds:7.1f} s  {'; '.join(phases)}", end="")
    print(f"  {max(speeds)} samples/s in {precision.group(1)}" if speeds and precision else "", flush=True)


def processor():
    """Returns what tells this processor's speed: its name, and which of the instructions that matter it has."""
    text = Path("/proc/cpuinfo").read_text(encoding="ascii")
    flags = set(re.search(r"^flags\s*: (.*)$", text, re.MULTILINE).group(1).split())
    known = [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if name in flags]
    name = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE).group(1)
    return f"{name}, {' '.join(known) or 'without avx2'}"


def compiler(clone):
    cache = (clone / "build/release/CMakeCache.txt").read_text(encoding="utf-8")
    path = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", cache, re.MULTILINE).group(1)
    return subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout.split("\n")[0]


def measure(folder):
    clone = folder / "lockstep"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    cache = {"CCACHE_DIR": str(folder / "ccache")}
    print(f"load before: {os.getloadavg()[0]:.2f}, cores: {os.cpu_count()}, {processor()}")
    timed("first ./dev train", ["./dev", "train"], clone, **cache)
    timed("second, one step", ["./dev", "train", "--max-steps", "1"], clone, **cache)
    with open(clone / "lockstep/train/trainer.cpp", "a", encoding="utf-8") as source:
        # More than a comment: ccache would know the result.
        source.write(f"namespace {{ [[maybe_unused]] constexpr auto kEdited = {time.time_ns()}; }}\n")
    timed("./dev build lockstep-train, edited", ["./dev", "build", "lockstep-train"], clone, **cache)
    timed("./dev train as with AVX2 only", ["./dev", "train"], clone, LOCKSTEP_TEST_CPU_FEATURES="avx2", ONEDNN_MAX_CPU_ISA="AVX2",
          ATEN_CPU_CAPABILITY="avx2", **cache)
    print(compiler(clone))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    if arguments.folder:
        arguments.folder.mkdir(parents=True, exist_ok=True)
        measure(arguments.folder.resolve())
    else:
        with tempfile.TemporaryDirectory() as folder:
            measure(Path(folder))


if __name__ == "__main__":
    main()
