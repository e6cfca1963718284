#!/usr/bin/env python3
"""Trains exported nets of Python by Lockstep and by Python: do 20 steps end with the same parameters and buffers?

    benchmarks/exported_models.py --peer-python peer/bin/python [NET...] [--bin build/release/bin] [--peer-python-2-11 OTHER/bin/python]

The nets are those of peers/exported_nets.py, with random weights; Python exports each, trains it eagerly in fp64 and in fp32 and
writes what came out, exported_models_benchmark trains the program from the same inputs. Differences are relative to a tensor's
largest number; 1e-10 counts as equal in fp64, 1e-5 in fp32. With dropouts (--keep-dropout) both draw from the same seed. Ten of
the nets are also exported by the older PyTorch, if its Python is given. Exits with 1 if fewer than 37 are equal, or one of those ten
is not.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PEER = ROOT / "benchmarks/peers/exported_nets.py"
TOLERANCES = {"float64": 1e-10, "float32": 1e-5}
STEPS, LR = 20, 0.01
LR_OF = {"vgg11_bn": 0.001}  # diverges otherwise: its last batch norms see two pixels
OF_OLDER = ["resnet18", "mobilenet_v2", "convnext_atto", "vit_tiny", "unet", "lstm_tagger", "gpt2", "bert", "t5", "swin"]
ENOUGH = 37


def last_line(text):
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no message"


def compared(python, program, net, kind, flags, folder):
    """Returns the differences of a net, or why there are none."""
    lr = str(LR_OF.get(net, LR))
    made = subprocess.run([python, PEER, "--net", net, "--type", kind, "--output", folder, "--steps", str(STEPS), "--lr", lr, *flags],
                          capture_output=True, text=True)
    if made.returncode:
        return {"equal": False, "why": "not exported: " + last_line(made.stderr)}
    base = str(Path(folder) / net)
    ours = subprocess.run([program, base + ".pt2", base + ".safetensors", str(STEPS), lr, str(TOLERANCES[kind])],
                          capture_output=True, text=True)
    return json.loads(ours.stdout) if ours.stdout else {"equal": False, "why": last_line(ours.stderr)}


def row(net, kind, version, result):
    if "why" in result:
        return f"| {net} | {kind} | {version} | refused: {result['why']} |"
    numbers = ", ".join(f"{result[key]:.1e}" for key in ("evaluation", "losses", "state"))
    return f"| {net} | {kind} | {version} | {'equal' if result['equal'] else 'differs in ' + result['of']}: {numbers} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nets", nargs="*")
    parser.add_argument("--peer-python")
    parser.add_argument("--peer-python-2-11")
    parser.add_argument("--bin", type=Path, default=ROOT / "build/release/bin")
    parser.add_argument("--types", nargs="+", choices=TOLERANCES, default=list(TOLERANCES))
    parser.add_argument("--keep-dropout", action="store_true")
    given = parser.parse_args()
    flags = ["--keep-dropout"] if given.keep_dropout else []
    pythons = {"2.15": given.peer_python, "2.11": given.peer_python_2_11}
    pythons = {version: python for version, python in pythons.items() if python}
    if not pythons:
        parser.error("give --peer-python")
    listed = [next(iter(pythons.values())), PEER, "--list"]
    nets = given.nets or subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split()
    works = [(version, net) for version in pythons for net in nets if version == "2.15" or net in OF_OLDER]
    print("| net | type | exported by | evaluation, losses, parameters and buffers |\n|---|---|---|---|")
    equal = Counter()
    for version, net in works:
        results = {}
        for kind in given.types:
            with tempfile.TemporaryDirectory() as folder:
                results[kind] = compared(pythons[version], given.bin / "exported_models_benchmark", net, kind, flags, folder)
            print(row(net, kind, version, results[kind]), flush=True)
        equal[version] += all(result["equal"] for result in results.values())
    wanted = Counter(version for version, _ in works)
    print("\n" + "; ".join(f"{equal[version]} of {count} nets of {version} are equal" for version, count in wanted.items()) + ".")
    return 0 if all(equal[version] >= min(ENOUGH, count) for version, count in wanted.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
