#!/usr/bin/env python3
"""Times training of nets exported from Python in Lockstep and in Python PyTorch, in turn on the same cores, and prints the ratios of medians.

    python3 -m venv peer && peer/bin/pip install torch==2.15.0 torchvision timm transformers==5.24.0 safetensors
    benchmarks/exported_speed.py --peer-python peer/bin/python [--json FILE]
    benchmarks/exported_speed.py --peer-python peer/bin/python --only resnet18 gpt2 --rounds 5

For each net peers/exported_speed.py exports the program and draws data. Lockstep is two ranks of `lockstep train --model net.pt2`.
The peer first runs each of its settings once, and goes on with the best: two ranks of one thread or one of two, compiled or not, and
for nets of images channels-last, if that is faster. Both train in fp32 by SGD with momentum, from the same file, with the same batch
over all ranks; the time of a step is the median over the lines of a run, without the first.
"""

import json
import math
import statistics
import tempfile
from pathlib import Path

from commands import ROOT, SharedTime, bold_ratio, last_json, output_of, parser_of, ratio_of, seconds_of_step, setting, with_range

PEER = ROOT / "benchmarks/peers/exported_speed.py"
LINES = 6


def parse_arguments():
    parser = parser_of(__doc__)
    parser.add_argument("--peer-python", required=True, help="a Python that can import torch 2.15, torchvision, timm, transformers")
    parser.add_argument("--only", nargs="+", metavar="NET", help="all, unless given")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=30, help="of each run")
    parser.add_argument("--no-compile", action="store_true", help="leave out the peer's compiled settings, which take minutes each")
    parser.add_argument("--json", metavar="FILE", help="write what was measured")
    return parser.parse_args()


def nets_of(arguments):
    known = output_of([arguments.peer_python, PEER, "--list"]).split()
    for net in arguments.only or []:
        if net not in known:
            raise SystemExit(f"--only: {net} is none of {', '.join(known)}")
    return arguments.only or known


def ours(arguments, folder, work):
    """Trains by two ranks; returns the samples a second."""
    with tempfile.TemporaryDirectory() as run:
        command = [arguments.lockstep, "train", "--model", f"{folder}/net.pt2", "--data", f"tensors:{folder}/train.safetensors,{folder}/test.safetensors"]
        command += ["--nproc-per-node", "2", "--batch-size", str(work["batch"] // 2), "--num-classes", str(work["classes"])]
        command += ["--opt", "sgd", "--momentum", "0.9", "--lr", "0.01", "--max-steps", str(arguments.steps)]
        command += ["--log-interval", str(arguments.steps // LINES), "--val-interval", "never", "--snapshot-interval", "never"]
        output_of([*command, "--progress", "none", "--output", f"{run}/run"])
        return work["batch"] / seconds_of_step(f"{run}/run")


def peer(arguments, net, folder, work, flags):
    """The same by the peer with these flags."""
    command = [arguments.peer_python, PEER, "--net", net, "--data", folder, "--steps", str(arguments.steps), "--lines", str(LINES)]
    return work["batch"] / statistics.median(last_json(output_of([*map(str, command), *flags]))["seconds"][1:])


def best_flags(arguments, net, folder, work):
    """Returns the fastest of the peer's settings, and the rates of all."""
    rates = {}

    def rate(*flags):
        rates[flags] = peer(arguments, net, folder, work, flags)
        return rates[flags]

    def text(ranks):
        return ["--ranks", str(ranks), "--threads", str(2 // ranks)]

    is_faster_so = work["images"] and rate(*text(1), "--channels-last") > rate(*text(1))
    order = ["--channels-last"] if is_faster_so else []
    for ranks in (1, 2):
        for compiled in [[]] if arguments.no_compile else [[], ["--compile"]]:
            flags = (*text(ranks), *order, *compiled)
            if flags not in rates:
                rate(*flags)
    return max(rates, key=rates.get), {" ".join(flags): speed for flags, speed in rates.items()}


def text_of(flags):
    ranks = flags[flags.index("--ranks") + 1]
    return f"{ranks}x{2 // int(ranks)}" + "".join(f", {flag[2:]}" for flag in ("--compile", "--channels-last") if flag in flags)


def measure(arguments, net):
    with tempfile.TemporaryDirectory() as folder:
        work = last_json(output_of([arguments.peer_python, PEER, "--net", net, "--make", folder]))
        flags, settings = best_flags(arguments, net, folder, work)
        own, others, busy = [], [], SharedTime()
        for _ in range(arguments.rounds):
            own.append(ours(arguments, folder, work))
            others.append(peer(arguments, net, folder, work, flags))
    load = busy.of_others()
    print(f"| {net} | {work['batch']} | {with_range(own, ',.4g')} | {with_range(others, ',.4g')}, {text_of(flags)} | {bold_ratio(own, others)} "
          f"| {load:.0%} |", flush=True)
    return {"net": net, **work, "lockstep": own, "peer": others, "setting": text_of(flags), "settings": settings,
            "ratio": ratio_of(own, others)[0], "others": load}


def main():
    arguments = parse_arguments()
    print(setting("fp32", f"{arguments.rounds} rounds") + "\n")
    print("| net | batch | Lockstep, samples/s | PyTorch's best, ranks x threads | **ratio** (by round) | other programs |")
    print("|---|---|---|---|---|---|", flush=True)
    rows = []
    for net in nets_of(arguments):
        rows.append(measure(arguments, net))
        if arguments.json:
            Path(arguments.json).write_text(json.dumps({"setting": setting("fp32"), "rows": rows}, indent=1) + "\n")
    ratios = [row["ratio"] for row in rows]
    print(f"\nGeometric mean of {len(ratios)}: **{math.exp(statistics.mean(map(math.log, ratios))):.2f}**, least {min(ratios):.2f}.")


if __name__ == "__main__":
    main()
