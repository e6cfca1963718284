#!/usr/bin/env python3
"""Times a newcomer's first minutes: ./dev train in a fresh clone with an empty ccache, a second start, and one without bf16.

    benchmarks/first_train.py                    a clone in a temporary folder, removed afterwards
    benchmarks/first_train.py --folder DIR       a clone in DIR, which stays
    benchmarks/first_train.py --wheel WHEEL --debian trixie
                                                 or from pip install to the end of the first epoch in a bare Debian

Packages of Debian should be there (./dev setup), or their download is timed too. Nothing else should run: the machine's load is
printed, as are its processor and, at the end, the compiler (CXX=g++ takes another). The last run trains as on a processor that has
AVX2 but neither AVX-512 nor bf16 instructions, in float32.

The wheel needs root and debootstrap. The Debian has python3-venv and dataset-fashion-mnist beside its minimum, and the parts of
PyTorch from PyPI that programs for CPUs load: cmake/libtorch-2.15.0.txt, not the gigabytes of CUDA. So pip gets --no-deps. The
Debian is made before the clock starts, and used again where DIR has it.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
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
    return seconds


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


def inside(root, *command):
    """Returns the words that run a command in the Debian below `root`, with the devices and processes of this machine."""
    enter = 'for folder in dev proc sys; do mount --rbind "/$folder" "$0/$folder"; done; exec chroot "$0" "$@"'
    return ["unshare", "--mount", "--propagation", "private", "bash", "-ec", enter, str(root), *command]


def make_debian(suite, root):
    """Makes a Debian with an environment of Python in /venv that has LibTorch."""
    subprocess.run(["debootstrap", "--variant=minbase", "--include=python3-venv,dataset-fashion-mnist", suite, str(root)],
                   check=True, stdout=subprocess.DEVNULL)
    ask = inside(root, "python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
    version = subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip()
    pins = re.findall(r"^\S+==\S+", (ROOT / "cmake/libtorch-2.15.0.txt").read_text(encoding="utf-8"), re.MULTILINE)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--python-version", version]
    platforms = [f"--platform=manylinux{tag}_x86_64" for tag in ("2014", "_2_17", "_2_25", "_2_28")]
    subprocess.run([*pip, *platforms, "--dest", str(root / "wheels"), *pins], check=True)
    subprocess.run(inside(root, "python3", "-m", "venv", "/venv"), check=True)
    subprocess.run(inside(root, "/venv/bin/pip", "install", "--quiet", "--no-deps", "--no-index", "--find-links", "/wheels", *pins), check=True)
    shutil.rmtree(root / "wheels")


def measure_wheel(wheel, suite, folder):
    root = folder / suite
    if not root.exists():
        begun = root.with_suffix(".begun")  # of one that was broken off nothing is used
        shutil.rmtree(begun, ignore_errors=True)
        make_debian(suite, begun)
        begun.rename(root)
    shutil.copy(wheel, root)
    shutil.rmtree(root / "first", ignore_errors=True)
    subprocess.run(inside(root, "/venv/bin/pip", "uninstall", "--quiet", "--yes", "lockstep-torch"), check=True)
    print(f"load before: {os.getloadavg()[0]:.2f}, cores: {os.cpu_count()}, {processor()}")
    steps = {"pip install": ["pip", "install", "--no-deps", f"/{wheel.name}"],
             "lockstep train --epochs 1": ["lockstep", "train", "--epochs", "1", "--output", "/first"]}
    total = sum(timed(f"{suite}: {what}", inside(root, f"/venv/bin/{program}", *words), folder)
                for what, (program, *words) in steps.items())
    print(f"{suite + ': both':34} {total:7.1f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--wheel", type=Path)
    parser.add_argument("--debian", choices=["bookworm", "trixie"], default="bookworm")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        if arguments.wheel:
            measure_wheel(arguments.wheel, arguments.debian, folder)
        else:
            measure(folder)


if __name__ == "__main__":
    main()
