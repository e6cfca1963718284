#!/usr/bin/env python3
"""Times training with shared parameters, ours and FSDP2 of Python PyTorch over gloo, in turn on the same two cores, beside DDP of both.

    python3 -m venv peer && peer/bin/pip install torch==2.15.0 torchvision timm transformers==5.24.0 safetensors
    benchmarks/full_sharding.py --peer-python peer/bin/python [--nets gpt2 bert] [--json FILE]

The nets are exported ones of peers/works.py, with the same data on both sides: two ranks of one thread, fp32, AdamW. A net's time is the median
of a run's lines without the first; memory is the most that the processes of both ranks had resident.
"""

import json
import statistics
import tempfile
from pathlib import Path

from commands import ROOT, SharedTime, bold_ratio, last_json, output_of, parser_of, ratio_of, seconds_of_step, setting, steps_of, with_range
from peers.works import WORKS

PEER = ROOT / "benchmarks/peers/nets.py"
EXPORTED = [net for net, work in WORKS.items() if not work.model]
LINES = 6
MEGABYTE = 1e6


def parse_arguments():
    parser = parser_of(__doc__)
    parser.add_argument("--peer-python", required=True, help="a Python that can import torch 2.15, torchvision, timm, transformers")
    parser.add_argument("--nets", nargs="+", choices=EXPORTED, default=["gpt2", "bert", "vit_tiny"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=30, help="of each run")
    parser.add_argument("--json", metavar="FILE", help="write what was measured")
    return parser.parse_args()


def ours(arguments, net, folder, way):
    """Trains by two ranks; returns samples a second and the bytes of memory."""
    work = WORKS[net]
    with tempfile.TemporaryDirectory() as run:
        command = [arguments.lockstep, "train", *work.flags_of_lockstep(folder), "--parallel", way, "--nproc-per-node", "2"]
        command += ["--batch-size", str(work.batch // 2), "--opt", "adamw", "--lr", "0.001", *steps_of(arguments.steps, LINES)]
        output_of([*command, "--output", f"{run}/run"])
        summary = json.loads(Path(f"{run}/run/summary.json").read_text())
        return work.batch / seconds_of_step(f"{run}/run"), summary["peak_memory_bytes"]


def peer(arguments, net, flags):
    command = [arguments.peer_python, PEER, "--net", net, "--steps", arguments.steps, "--lines", LINES, "--ranks", 2, "--threads", 1]
    found = last_json(output_of(list(map(str, [*command, "--optimizer", "adamw", *flags]))))
    return WORKS[net].batch / statistics.median(found["seconds"][1:]), found["peak_bytes"]


def measure(arguments, net):
    with tempfile.TemporaryDirectory() as folder:
        made = last_json(output_of([arguments.peer_python, str(PEER), "--net", net, "--make", folder]))
        sides = {"ours fsdp": lambda: ours(arguments, net, folder, "fsdp"), "ours ddp": lambda: ours(arguments, net, folder, "ddp"),
                 "FSDP2": lambda: peer(arguments, net, ["--sharded"]), "DDP": lambda: peer(arguments, net, [])}
        rates, memory, busy = {side: [] for side in sides}, {}, SharedTime()
        for _ in range(arguments.rounds):
            for side, run in sides.items():
                rate, memory[side] = run()
                rates[side].append(rate)
    columns = [f"{with_range(rates[side], ',.4g')}; {memory[side] / MEGABYTE:,.0f} MB" for side in sides]
    print(f"| {net} | {' | '.join(columns)} | {bold_ratio(rates['ours fsdp'], rates['FSDP2'])} | {bold_ratio(rates['ours fsdp'], rates['ours ddp'])} "
          f"| {busy.of_others():.0%} |", flush=True)
    return {"net": net, "batch": WORKS[net].batch, **made, "rates": rates, "memory": memory, "ratio": ratio_of(rates["ours fsdp"], rates["FSDP2"])[0]}


def main():
    arguments = parse_arguments()
    print(setting("fp32, AdamW, two ranks of one thread", f"{arguments.rounds} rounds") + "\n")
    print("| net | Lockstep fsdp, samples/s | Lockstep ddp | PyTorch FSDP2 | PyTorch DDP | **fsdp over FSDP2** | **fsdp over ddp** | other programs |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    rows = [measure(arguments, net) for net in arguments.nets]
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({"setting": setting("fp32"), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
