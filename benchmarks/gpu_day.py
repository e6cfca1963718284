#!/usr/bin/env python3
"""Measures what one GPU has to tell in at most eight minutes, and writes it to a folder that results/ takes as it is.

    benchmarks/gpu_day.py --lockstep build/release/bin/lockstep --peer-python python3 --output results/gpu

In turn, so that what matters most is there if time runs out: the self-test (`lockstep env --check-devices`); training of eight nets in four
precisions beside PyTorch eager, then compiled where time is left; a measured profile and its predictions of other batches; what snapshots
cost; the throughput study's quick grid. Each part has a share of the time. What was not reached or failed is listed, with the reason.

Lockstep trains from `--data mock:constant`, or tokens, which lie on the device as the peer's batches do; the rate is that of the steps after
the first sixth. --tiny is a rehearsal: the same parts with small work, ours on any device, such as the emulated one, the peer on the CPU:

    ./dev build emulated_lockstep && cp build/release/bin/lockstep-bench build/release/emulated/
    benchmarks/gpu_day.py --lockstep build/release/emulated/lockstep --device auto --tiny --peer-python python3 --output /tmp/day
"""

import json
import os
import select
import statistics
import subprocess
import tempfile
import time
from array import array
from dataclasses import dataclass
from pathlib import Path

from commands import ROOT, cpu_model, parser_of, seconds_of_step, steps_alone

PEER = ROOT / "benchmarks/peers/gpu_day.py"
PRECISIONS = {"bf16-mixed": "--precision bf16-mixed", "32": "--precision 32 --tf32 off", "16-mixed": "--precision 16-mixed",
              "tf32": "--precision 32 --tf32 on"}


@dataclass
class Net:
    name: str
    image_size: int  # of gpt2: the tokens of a sequence
    batch: int
    steps: int
    classes: int = 10

    def is_of_tokens(self):
        return self.name == "gpt2"


NETS = [Net("resnet50", 224, 128, 24, 1000), Net("gpt2", 1024, 8, 18, 50257), Net("resnet18", 32, 256, 120), Net("mnist-small", 28, 256, 600),
        Net("vgg19", 224, 64, 18, 20), Net("resnet18-cifar", 32, 256, 48), Net("mnist-large", 28, 256, 120), Net("resnet101", 224, 64, 18, 1000)]
TINY = [Net("mnist-small", 28, 32, 12), Net("resnet18", 32, 8, 6), Net("gpt2", 16, 1, 6, 50257)]


class Late(Exception):
    """No time is left for it."""


class Day:
    """The time that is left, and what has been found."""

    def __init__(self, arguments, tokens):
        self.arguments, self.tokens = arguments, tokens
        self.start, self.found, self.missing = time.monotonic(), {}, []

    def seconds(self):
        return time.monotonic() - self.start

    def left(self, until):
        """Returns the seconds until this share of the whole time has passed."""
        return until * self.arguments.seconds - self.seconds()

    def run(self, command, until, least=5):
        """Returns what a command prints, or raises Late, or RuntimeError with the last line of what it said."""
        if self.left(until) < least:
            raise Late("not reached")
        try:
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=self.left(until))
        except subprocess.TimeoutExpired:
            raise Late("its time was over before it ended") from None
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise RuntimeError(f"code {done.returncode}: {said[-1] if said else 'no word'}")
        return done.stdout

    def part(self, name, body):
        """Keeps what the body returns, or why it returned nothing."""
        try:
            self.found[name] = body()
        except Exception as error:  # noqa: BLE001: the day goes on with the next part
            self.missing.append({"part": name, "why": str(error) or type(error).__name__})
        self.write()

    def write(self):
        folder = Path(self.arguments.output)
        day = {"environment": environment(self), "seconds": round(self.seconds(), 1), "found": self.found, "missing": self.missing}
        (folder / "day.json").write_text(json.dumps(day, indent=1) + "\n")
        (folder / "report.md").write_text(report(day))


class Peer:
    """The process of peers/gpu_day.py."""

    def __init__(self, arguments):
        device = "cuda" if arguments.device == "cuda" else "cpu"
        self.process = subprocess.Popen([arguments.peer_python, str(PEER), device], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def about(self):
        """Waits until it has begun. Returns what it says of itself."""
        return self.read(60)

    def read(self, seconds):
        """Returns its next line, and ends it if there is none in time."""
        if not select.select([self.process.stdout], [], [], max(0, seconds))[0]:
            self.process.kill()
            raise Late("the peer took too long")
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the peer's process has ended")
        return json.loads(line)

    def rate(self, net, precision, seconds, is_compiled=False):
        asked = {"net": net.name, "precision": precision, "batch": net.batch, "image_size": net.image_size, "classes": net.classes,
                 "steps": net.steps, "compile": is_compiled}
        try:
            self.process.stdin.write(json.dumps(asked) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise RuntimeError("the peer's process has ended") from None
        answer = self.read(seconds)
        if "error" in answer:
            raise RuntimeError(f"the peer: {answer['error']}")
        return answer["rate"]

    def end(self):
        self.process.kill()
        self.process.wait()


def environment(day):
    return {"device": day.found.get("device", {}), "processor": cpu_model(), "cores": os.cpu_count(), "date": time.strftime("%Y-%m-%d"),
            "rehearsal": day.arguments.tiny}


def train_command(day, net, flags):
    command = [day.arguments.lockstep, "train", "--model", net.name, "--device", day.arguments.device, "--batch-size", net.batch,
               *steps_alone(net.steps, 6), "--num-classes", net.classes, *flags.split()]
    if net.is_of_tokens():
        return [*command, "--data", f"tokens:{day.tokens}", "--sequence-length", net.image_size]
    return [*command, "--image-size", net.image_size]


def our_rate(day, net, flags, until):
    extra = " --cudnn-benchmark" if day.arguments.device == "cuda" else ""
    with tempfile.TemporaryDirectory() as folder:
        day.run([*train_command(day, net, flags + extra), "--output", f"{folder}/run"], until)
        return net.batch / seconds_of_step(f"{folder}/run")


def speeds(day, peer, nets, until):
    """Trains each net in each precision, the most asked for first."""
    rows = day.found["speed"] = []
    for precision, flags in PRECISIONS.items():
        for net in nets:
            row = {"net": net.name, "batch": net.batch, "precision": precision}
            try:
                if day.left(until) < 5:
                    raise Late("not reached")
                row["lockstep"] = our_rate(day, net, flags, until)
                rows.append(row)
                row["eager"] = peer.rate(net, precision, day.left(until))
            except (Late, RuntimeError) as error:
                day.missing.append({"part": f"{net.name} in {precision}", "why": str(error)})
    return rows


def compiled_speeds(day, peer, nets, until):
    """Adds the compiled peer's rates in the first precision."""
    for net in nets:
        row = next((row for row in day.found.get("speed", []) if (row["net"], row["precision"]) == (net.name, "bf16-mixed")), None)
        try:
            if row is None or day.left(until) < 40:
                raise Late("not reached")
            row["compiled"] = peer.rate(net, "bf16-mixed", day.left(until), True)
        except (Late, RuntimeError) as error:
            day.missing.append({"part": f"{net.name} compiled", "why": str(error)})
    return True


def predictions(day, net, until):
    """Measures a profile at three batches and compares its predictions of others with trainings."""
    measured = [net.batch, net.batch // 2, net.batch // 4]
    asked = sorted({max(1, net.batch * part // 16) for part in (3, 5, 6, 7, 9, 10, 11, 12, 13, 14)} - set(measured))
    device = ["--", "--device", day.arguments.device, "--image-size", net.image_size, "--num-classes", net.classes]
    with tempfile.TemporaryDirectory() as folder:
        profile = Path(folder, "profile.json")
        day.run([day.arguments.lockstep, "plan", "--model", net.name, "--batch", net.batch, "--places", 1, "--ways", "serial", "--measure-rounds", 1,
                 "--measure-batches", ",".join(map(str, measured)), "--save", profile, *device], until)
        rows = []
        for batch in asked:
            printed = day.run([day.arguments.lockstep, "plan", "--profile", profile, "--batch", batch, "--places", 1, "--ways", "serial", "--json"],
                              until, 1)
            told = json.loads(printed.strip().splitlines()[-1])["choices"][0]
            rate = our_rate(day, Net(net.name, net.image_size, batch, net.steps, net.classes), "", until)
            rows.append({"batch": batch, "predicted_ms": 1e3 * told["step_seconds"], "measured_ms": 1e3 * batch / rate})
        return rows


def snapshots(day, net, until):
    """Compares the steps of a training that writes a snapshot every sixth of it with one that writes none."""
    with tempfile.TemporaryDirectory() as folder:
        command = train_command(day, net, "")
        seconds = {}
        for name, flags in {"without": [], "with": ["--snapshot-interval", f"{net.steps // 6}steps"]}.items():
            day.run([*command, *flags, "--output", f"{folder}/{name}"], until)
            seconds[name] = seconds_of_step(f"{folder}/{name}")
        return {"net": net.name, "steps": net.steps // 6, **{f"{name}_ms": 1e3 * value for name, value in seconds.items()}}


def study(day, until):
    folder = Path(day.arguments.output, "throughput")
    budget = int(day.left(until)) - 15
    if budget < 10:
        raise Late("not reached")
    day.run([day.arguments.lockstep, "bench", "throughput", "--quick", "--device", day.arguments.device, "--budget", f"{budget}s", "--output", folder], until)
    return str(folder.name)


def speed_table(rows):
    lines = ["| net | batch | precision | Lockstep, samples/s | eager | compiled | over eager |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        rates = [f"{row[who]:,.4g}" if who in row else "" for who in ("lockstep", "eager", "compiled")]
        over = f"**{row['lockstep'] / row['eager']:.2f}**" if "eager" in row else ""
        lines.append(f"| {row['net']} | {row['batch']} | {row['precision']} | {' | '.join(rates)} | {over} |")
    return lines


def prediction_lines(rows):
    errors = [abs(row["predicted_ms"] / row["measured_ms"] - 1) for row in rows]
    lines = [f"Predictions of {len(rows)} batches that were not measured: off by {statistics.median(errors):.1%} in the median, "
             f"{max(errors):.1%} at most.", "", "| batch | predicted, ms | trained, ms |", "|---|---|---|"]
    return lines + [f"| {row['batch']} | {row['predicted_ms']:.4g} | {row['measured_ms']:.4g} |" for row in rows]


def report(day):
    found, about = day["found"], day["environment"]
    lines = ["# A GPU's day", "", f"{about['device'].get('device', 'No device')}, PyTorch {about['device'].get('torch', 'unknown')}, "
             f"{about['processor']}, {about['cores']} cores, {about['date']}, {day['seconds']:.0f} s."]
    if about["rehearsal"]:
        lines += ["", "**A rehearsal with small work: no figure here is one of a GPU.**"]
    if "self-test" in found:
        lines += ["", "## Self-test", "", "```", found["self-test"].strip(), "```"]
    if found.get("speed"):
        lines += ["", "## Speed", "", *speed_table(found["speed"])]
    if found.get("predictions"):
        lines += ["", "## Predictions", "", *prediction_lines(found["predictions"])]
    if "snapshots" in found:
        of = found["snapshots"]
        lines += ["", "## Snapshots", "", f"A step of {of['net']} takes {of['without_ms']:.4g} ms, and {of['with_ms']:.4g} with a snapshot every "
                  f"{of['steps']} steps."]
    if "study" in found:
        lines += ["", f"The [throughput study]({found['study']}/report.md)."]
    if day["missing"]:
        lines += ["", "## Not there", "", *(f"* {each['part']}: {each['why']}" for each in day["missing"])]
    return "\n".join(lines) + "\n"


def parse_arguments():
    parser = parser_of(__doc__)
    parser.add_argument("--peer-python", required=True, help="a Python that can import torch, torchvision and transformers")
    parser.add_argument("--device", default="cuda", help="as lockstep train takes it")
    parser.add_argument("--seconds", type=float, default=470, help="for all")
    parser.add_argument("--tiny", action="store_true", help="a rehearsal with small work")
    parser.add_argument("--output", required=True, metavar="DIR")
    return parser.parse_args()


def spend(day):
    nets = TINY if day.arguments.tiny else NETS
    peer = Peer(day.arguments)
    day.part("device", peer.about)
    day.part("self-test", lambda: day.run([day.arguments.lockstep, "env", "--check-devices"], 0.13))
    day.part("speed", lambda: speeds(day, peer, nets, 0.6))
    day.part("predictions", lambda: predictions(day, nets[0], 0.75))
    day.part("snapshots", lambda: snapshots(day, nets[0], 0.8))
    day.part("study", lambda: study(day, 0.9))
    day.part("compiled", lambda: compiled_speeds(day, peer, nets, 1))
    peer.end()


def main():
    arguments = parse_arguments()
    Path(arguments.output).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as tokens:
        for part in ("train", "test"):
            Path(tokens, f"{part}.bin").write_bytes(array("H", ((7919 * i) % 50257 for i in range(1 << 17))).tobytes())
        day = Day(arguments, tokens)
        spend(day)
    print(Path(arguments.output, "report.md").read_text())


if __name__ == "__main__":
    main()
