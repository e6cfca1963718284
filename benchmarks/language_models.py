#!/usr/bin/env python3
"""Times training of language models in Lockstep and in Python PyTorch, in turn on the same cores, and prints the ratios of medians.

    python3 -m venv peer && peer/bin/pip install torch==2.15.0 transformers==5.24.0
    benchmarks/language_models.py --peer-python peer/bin/python [--json FILE]

Lockstep is two ranks of `lockstep train --model gpt2`, and llama-15m, by ddp and by fsdp. The peer is nanoGPT's loop with the nets of
transformers; it first runs each of its settings once, two ranks of one thread and one of two, compiled or not, and goes on with the best;
beside it FSDP2 over gloo. All train in fp32 by AdamW with sequences from the same file and the same batch over all ranks; the time of a
step is the median over the lines of a run, without the first.
"""

import json
import random
import statistics
import tempfile
from array import array
from pathlib import Path

from commands import ROOT, SharedTime, bold_ratio, last_json, output_of, parser_of, ratio_of, seconds_of_step, setting, with_range

PEER = ROOT / "benchmarks/peers/language_models.py"
NETS = {  # words of the vocabulary, sequences of all ranks, their length
    "gpt2": (50257, 4, 256),
    "llama-15m": (32000, 8, 256),
}
LINES = 6


def parse_arguments():
    parser = parser_of(__doc__)
    parser.add_argument("--peer-python", required=True, help="a Python that can import torch 2.15 and transformers")
    parser.add_argument("--only", nargs="+", choices=NETS, default=list(NETS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12, help="of each run")
    parser.add_argument("--no-compile", action="store_true", help="leave out the peer's compiled settings, which take minutes each")
    parser.add_argument("--json", metavar="FILE", help="write what was measured")
    return parser.parse_args()


def draw(folder, words, tokens):
    """Writes files of tokens to train and to test with."""
    draws = random.Random(1)
    for part in ("train", "test"):
        Path(folder, f"{part}.bin").write_bytes(array("H", (draws.randrange(words) for _ in range(tokens))).tobytes())


def ours(arguments, net, folder, way):
    """Trains by two ranks; returns the tokens a second."""
    words, batch, length = NETS[net]
    with tempfile.TemporaryDirectory() as run:
        command = [arguments.lockstep, "train", "--model", net, "--data", f"tokens:{folder}", "--num-classes", str(words)]
        command += ["--sequence-length", str(length), "--parallel", way, "--nproc-per-node", "2", "--batch-size", str(batch // 2), "--opt", "adamw", "--lr", "6e-4"]
        command += ["--opt-betas", "0.9,0.95", "--opt-eps", "1e-8", "--weight-decay", "0.1", "--weight-decay-on", "weights", "--clip-grad", "1"]
        command += ["--max-steps", str(arguments.steps), "--log-interval", str(arguments.steps // LINES)]
        command += ["--val-interval", "never", "--snapshot-interval", "never", "--progress", "none", "--output", f"{run}/run"]
        output_of(command)
        return batch * length / seconds_of_step(f"{run}/run")


def peer(arguments, net, folder, flags):
    """The same by the peer with these flags."""
    words, batch, length = NETS[net]
    command = [arguments.peer_python, PEER, "--net", net, "--data", f"{folder}/train.bin", "--words", words, "--batch", batch]
    command += ["--length", length, "--steps", arguments.steps, "--lines", LINES, *flags]
    return batch * length / statistics.median(last_json(output_of(list(map(str, command))))["seconds"][1:])


def settings_of(arguments):
    for ranks in (1, 2):
        for compiled in [[]] if arguments.no_compile else [[], ["--compile"]]:
            yield ("--ranks", str(ranks), "--threads", str(2 // ranks), *compiled)


def text_of(flags):
    return f"{flags[1]}x{flags[3]}" + (", compile" if "--compile" in flags else "")


def measure(arguments, net):
    with tempfile.TemporaryDirectory() as folder:
        draw(folder, NETS[net][0], 200_000)
        tried = {flags: peer(arguments, net, folder, flags) for flags in settings_of(arguments)}
        flags = max(tried, key=tried.get)
        sides = {"ddp": lambda: ours(arguments, net, folder, "ddp"), "fsdp": lambda: ours(arguments, net, folder, "fsdp"),
                 "peer": lambda: peer(arguments, net, folder, flags),
                 "FSDP2": lambda: peer(arguments, net, folder, ["--ranks", "2", "--threads", "1", "--sharded"])}
        rates, busy = {side: [] for side in sides}, SharedTime()
        for _ in range(arguments.rounds):
            for side, run in sides.items():
                rates[side].append(run())
    cells = [with_range(rates[side], ",.4g") for side in sides]
    cells[2] += f", {text_of(flags)}"
    print(f"| {net} | {NETS[net][1]} x {NETS[net][2]} | {' | '.join(cells)} | {bold_ratio(rates['ddp'], rates['peer'])} "
          f"| {bold_ratio(rates['fsdp'], rates['FSDP2'])} | {busy.of_others():.0%} |", flush=True)
    return {"net": net, "rates": rates, "setting": text_of(flags), "settings": {text_of(of): rate for of, rate in tried.items()},
            "ratios": [ratio_of(rates["ddp"], rates["peer"])[0], ratio_of(rates["fsdp"], rates["FSDP2"])[0]], "others": busy.of_others()}


def main():
    arguments = parse_arguments()
    print(setting("fp32", f"{arguments.rounds} rounds") + "\n")
    print("| net | batch | Lockstep ddp, tokens/s | Lockstep fsdp | PyTorch's best, ranks x threads | FSDP2 | **ddp over the best** (by round) "
          "| **fsdp over FSDP2** | other programs |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    rows = [measure(arguments, net) for net in arguments.only]
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({"setting": setting("fp32"), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
