#!/usr/bin/env python3
"""Measures what one GPU has to tell in at most eight minutes, and writes it to a folder that results/ takes as it is.

    benchmarks/gpu_day.py --lockstep build/release/bin/lockstep --peer-python python3 --output results/gpu

First, beside each other, what needs no quiet: the self-test (`lockstep env --check-devices`), test programs (--tests), PyTorch's compiling of
four nets and its export of three. Then in turn, so that what matters most is there if time runs out: training of eight nets in four precisions
beside PyTorch eager, and in bf16-mixed compiled; of the exported ones; a measured profile and its predictions of other batches; what snapshots
cost; the throughput study's quick grid. Each part has a share of the time. What was not reached or failed is listed, with the reason.

--parts takes some of them, by the names that day.json has. A folder that a day was written to before is gone on with: rates that are there stay,
and of other parts what is measured now.

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
import threading
import time
from array import array
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from commands import ROOT, cpu_model, parser_of, seconds_of_lines, seconds_of_step, steps_alone, steps_of
from peers.works import WORKS

PEERS = ROOT / "benchmarks/peers"
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
        Net("vgg19", 224, 64, 18, 20), Net("resnet18-cifar", 32, 256, 48), Net("mnist-large", 28, 256, 120), Net("resnet34", 224, 128, 24, 1000)]
TINY = [Net("mnist-small", 28, 32, 12), Net("resnet18", 32, 8, 6), Net("gpt2", 16, 1, 6, 50257)]
PARTS = ["device", "self-test", "tests", "speed", "compiled", "exported", "predictions", "snapshots", "study"]
EXPORTED = ["mobilenet_v3", "vit_tiny", "gpt_10m"]
COMPILED = ["resnet50", "gpt2", "resnet18", "mnist-small"]


class Late(Exception):
    """No time is left for it."""


class Day:
    """The time that is left, and what has been found."""

    def __init__(self, arguments, tokens):
        self.arguments, self.tokens, self.lock = arguments, tokens, threading.Lock()
        self.start, self.found, self.missing, self.seconds_before = time.monotonic(), {}, [], 0
        before = Path(arguments.output, "day.json")
        if before.exists():
            before = json.loads(before.read_text())
            self.found, self.seconds_before = before["found"], before["seconds"]
            self.missing = [each for each in before["missing"] if each["of"] not in arguments.parts]

    def asks(self, name):
        return name in self.arguments.parts

    def seconds(self):
        return time.monotonic() - self.start

    def left(self, until):
        """Returns the seconds until this share of the whole time has passed."""
        return until * self.arguments.seconds - self.seconds()

    def lacks(self, part, name, error):
        """Notes that something of a part is missing, and why."""
        self.missing.append({"of": part, "part": name, "why": str(error) or type(error).__name__})

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
        """Keeps what the body returns, or why it returned nothing, if this part was asked for."""
        if not self.asks(name):
            return
        try:
            found = body()
            with self.lock:
                self.found[name] = found
        except Exception as error:  # noqa: BLE001: the day goes on with the next part
            self.lacks(name, name, error)
        with self.lock:
            self.write()

    def write(self):
        folder = Path(self.arguments.output)
        seconds = round(self.seconds_before + self.seconds(), 1)
        day = {"environment": environment(self), "seconds": seconds, "found": self.found, "missing": self.missing}
        (folder / "day.json").write_text(json.dumps(day, indent=1) + "\n")
        (folder / "report.md").write_text(report(day))


class Peer:
    """The process of peers/gpu_day.py."""

    def __init__(self, arguments):
        device = "cuda" if arguments.device == "cuda" else "cpu"
        command = [arguments.peer_python, str(PEERS / "gpu_day.py"), device]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "4"})

    def about(self):
        """Waits until it has begun. Returns what it says of itself."""
        return self.read(120)

    def read(self, seconds):
        """Returns its next line, and ends it if there is none in time."""
        if not select.select([self.process.stdout], [], [], max(0, seconds))[0]:
            self.process.kill()
            raise Late("the peer took too long")
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the peer's process has ended")
        return json.loads(line)

    def ask(self, net, precision, is_compiled=False):
        self.write({"net": net.name, "precision": precision, "batch": net.batch, "image_size": net.image_size, "classes": net.classes,
                    "steps": net.steps, "compile": is_compiled})

    def ask_exported(self, name, precision, steps):
        self.write({"exported": name, "precision": precision, "batch": WORKS[name].batch, "steps": steps})

    def write(self, asked):
        try:
            self.process.stdin.write(json.dumps(asked) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise RuntimeError("the peer's process has ended") from None

    def rate(self, seconds):
        """Returns the samples a second of what was asked."""
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


def in_turn(nets):
    """Returns each net in each precision, the most asked for first."""
    first, then = nets[:4], nets[4:]
    return [(net, precision) for part in (first, then) for precision in PRECISIONS for net in part]


def whole_rows(rows):
    return [row for row in rows if "eager" in row]


def fill_rows(day, part, until, wanted, ours, theirs):
    """Trains each wanted row that is not there yet by both sides, whose rates these functions return."""
    rows = day.found[part] = whole_rows(day.found.get(part, []))
    there = {(row["net"], row["precision"]) for row in rows}
    for row in (row for row in wanted if (row["net"], row["precision"]) not in there):
        try:
            if day.left(until) < 5:
                raise Late("not reached")
            row["lockstep"] = ours(row)
            rows.append(row)
            row["eager"] = theirs(row)
        except (Late, RuntimeError) as error:
            day.lacks(part, f"{row['net']} in {row['precision']}", error)
    return rows


def speeds(day, peer, nets, until):
    by_name = {net.name: net for net in nets}

    def theirs(row):
        peer.ask(by_name[row["net"]], row["precision"])
        return peer.rate(day.left(until))

    wanted = [{"net": net.name, "batch": net.batch, "precision": precision} for net, precision in in_turn(nets)]
    return fill_rows(day, "speed", until, wanted, lambda row: our_rate(day, by_name[row["net"]], PRECISIONS[row["precision"]], until), theirs)


class CompiledPeers:
    """A process for each net, which compiles it at once and keeps it, so that timing needs no compiling."""

    def __init__(self, day, nets):
        self.day, self.nets = day, [net for net in nets if net.name in COMPILED and day.asks("compiled")]
        self.peers = {net.name: Peer(day.arguments) for net in self.nets}
        for net in self.nets:
            self.peers[net.name].ask(net, "bf16-mixed", True)

    def wait(self, until):
        """Ends those that have not compiled in time: what is timed next wants quiet."""
        for net in self.nets:
            try:
                self.peers[net.name].read(self.day.left(until))  # what it says of itself
                self.peers[net.name].rate(self.day.left(until))
            except (Late, RuntimeError) as error:
                self.day.lacks("compiled", f"{net.name} compiled", error)
                self.peers.pop(net.name).end()

    def rates(self, until):
        """Returns the rate of each, and ends them."""
        rates = {}
        for net in self.nets:
            if net.name not in self.peers:
                continue
            try:
                self.peers[net.name].ask(net, "bf16-mixed", True)
                rates[net.name] = self.peers[net.name].rate(self.day.left(until))
            except (Late, RuntimeError) as error:
                self.day.lacks("compiled", f"{net.name} compiled", error)
            self.peers[net.name].end()
        return rates


class Exports:
    """Nets of Python, each in a folder with its data, exported beside other work."""

    def __init__(self, day, folder):
        self.day, self.folder = day, folder
        self.making = {name: self.make(name) for name in (EXPORTED if day.asks("exported") else [])}

    def make(self, name):
        Path(self.folder, name).mkdir()
        command = [self.day.arguments.peer_python, PEERS / "nets.py", "--net", name, "--make", Path(self.folder, name)]
        return subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def wait(self, until):
        for name, process in list(self.making.items()):
            try:
                code = process.wait(max(0, self.day.left(until)))
                why = f"its export ended with code {code}"
            except subprocess.TimeoutExpired:
                process.kill()
                code, why = None, "its export took too long"
            if code != 0:
                self.day.lacks("exported", name, why)
                del self.making[name]

    def our_rate(self, name, precision, steps, until):
        work = WORKS[name]
        with tempfile.TemporaryDirectory() as run:
            command = [self.day.arguments.lockstep, "train", *work.flags_of_lockstep(f"{self.folder}/{name}"), "--batch-size", work.batch]
            command += ["--device", self.day.arguments.device, "--opt", "adam", "--lr", 0.001, *PRECISIONS[precision].split()]
            self.day.run([*command, *steps_of(steps, 6), "--output", f"{run}/run"], until)
            return work.batch / seconds_of_step(f"{run}/run")

    def speeds(self, peer, until):
        steps = 12 if self.day.arguments.tiny else 240

        def theirs(row):
            peer.ask_exported(row["net"], row["precision"], steps // 2)
            return peer.rate(self.day.left(until))

        wanted = [{"net": name, "batch": WORKS[name].batch, "precision": precision} for precision in ("bf16-mixed", "32") for name in self.making]
        return fill_rows(self.day, "exported", until, wanted, lambda row: self.our_rate(row["net"], row["precision"], steps, until), theirs)


def suite(day, program, until):
    """Returns how many of a test program's tests passed, were skipped and failed on the device."""
    device = "cuda" if day.arguments.device == "cuda" else "emulated"
    with tempfile.TemporaryDirectory() as folder:
        told, log = Path(folder, "told.json"), Path(folder, "log")
        with open(log, "w") as output:
            process = subprocess.Popen([program, f"--gtest_output=json:{told}"], stdout=output, stderr=output,
                                       env={**os.environ, "LOCKSTEP_TEST_DEVICE": device})
        try:
            process.wait(max(0, day.left(until)))
        except subprocess.TimeoutExpired:
            process.kill()
        if not told.exists():
            begun = [line for line in log.read_text().splitlines() if line.startswith("[ RUN      ]")]
            raise RuntimeError(f"did not end; the last of {len(begun)} that began: {begun[-1][13:] if begun else 'none'}")
        tests = [test for group in json.loads(told.read_text())["testsuites"] for test in group["testsuite"]]
    failed = [f"{test['classname']}.{test['name']}" for test in tests if "failures" in test]
    skipped = sum(test["result"] == "SKIPPED" for test in tests)
    return {"passed": len(tests) - len(failed) - skipped, "skipped": skipped, "failed": failed}


def suites(day, until):
    found = {}

    def take(program):
        try:
            found[program.name] = suite(day, program, until)
        except (Late, RuntimeError) as error:
            day.lacks("tests", program.name, error)

    programs = sorted(Path(day.arguments.tests).glob("*_test")) if day.arguments.tests else []
    with ThreadPoolExecutor(max(1, len(programs))) as pool:
        list(pool.map(take, programs))
    return found


def predictions(day, net, until):
    """Measures a profile at three batches and compares its predictions of others with trainings, as many as there is time for."""
    measured = [net.batch, net.batch // 2, net.batch // 4]
    asked = sorted({max(1, net.batch * part // 16) for part in (3, 5, 6, 7, 9, 10, 11, 12, 13, 14)} - set(measured))
    device = ["--", "--device", day.arguments.device, "--image-size", net.image_size, "--num-classes", net.classes]
    with tempfile.TemporaryDirectory() as folder:
        profile = Path(folder, "profile.json")
        day.run([day.arguments.lockstep, "plan", "--model", net.name, "--batch", net.batch, "--places", 1, "--ways", "serial", "--measure-rounds", 1,
                 "--measure-batches", ",".join(map(str, measured)), "--save", profile, *device], until)
        rows = []
        for batch in asked:
            try:
                rows.append(prediction(day, net, profile, batch, until))
            except Late as error:
                day.lacks("predictions", f"the prediction of batch {batch}", error)
        return rows


def prediction(day, net, profile, batch, until):
    printed = day.run([day.arguments.lockstep, "plan", "--profile", profile, "--batch", batch, "--places", 1, "--ways", "serial", "--json"], until, 1)
    told = json.loads(printed.strip().splitlines()[-1])["choices"][0]
    rate = our_rate(day, Net(net.name, net.image_size, batch, net.steps, net.classes), "", until)
    return {"batch": batch, "predicted_ms": 1e3 * told["step_seconds"], "measured_ms": 1e3 * batch / rate}


def snapshots(day, net, until):
    """Compares the mean step of a training that writes three snapshots, with time to write each, with that of one that writes none."""
    longer = Net(net.name, net.image_size, net.batch, 8 * net.steps, net.classes)
    between = 2 * net.steps
    with tempfile.TemporaryDirectory() as folder:
        command = train_command(day, longer, "")
        found = {"net": net.name, "steps": between}
        for name, flags in {"without": [], "with": ["--snapshot-interval", f"{between}steps"]}.items():
            day.run([*command, *flags, "--output", f"{folder}/{name}"], until)
            found[f"{name}_ms"] = 1e3 * statistics.mean(seconds_of_lines(f"{folder}/{name}"))
        return found


def study(day, until):
    folder = Path(day.arguments.output, "throughput")
    budget = int(day.left(until)) - 15
    if budget < 10:
        raise Late("not reached")
    day.run([day.arguments.lockstep, "bench", "throughput", "--quick", "--device", day.arguments.device, "--budget", f"{budget}s",
             "--output", folder], until)
    return str(folder.name)


def rate_text(rate):
    return f"{rate:,.0f}" if rate >= 1000 else f"{rate:,.4g}"


def speed_table(rows, compiled):
    lines = ["| net | batch | precision | Lockstep, samples/s | eager | compiled | over eager |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        if row["precision"] == "bf16-mixed" and row["net"] in compiled:
            row = {**row, "compiled": compiled[row["net"]]}
        rates = [rate_text(row[who]) if who in row else "" for who in ("lockstep", "eager", "compiled")]
        over = f"**{row['lockstep'] / row['eager']:.2f}**" if "eager" in row else ""
        lines.append(f"| {row['net']} | {row['batch']} | {row['precision']} | {' | '.join(rates)} | {over} |")
    return lines


def test_lines(found):
    lines = ["| tests | passed | skipped | failed |", "|---|---|---|---|"]
    return lines + [f"| {name} | {of['passed']} | {of['skipped']} | {', '.join(of['failed']) or 0} |" for name, of in sorted(found.items())]


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
    if found.get("tests"):
        lines += ["", "## Tests on the device", "", *test_lines(found["tests"])]
    if found.get("speed"):
        lines += ["", "## Speed", "", *speed_table(found["speed"], found.get("compiled", {}))]
    if found.get("exported"):
        lines += ["", "## Speed of exported nets", "", *speed_table(found["exported"], {})]
    if found.get("predictions"):
        lines += ["", "## Predictions", "", *prediction_lines(found["predictions"])]
    if "snapshots" in found:
        of = found["snapshots"]
        stall = of["steps"] * (of["with_ms"] - of["without_ms"])
        lines += ["", "## Snapshots", "", f"A step of {of['net']} takes {of['without_ms']:.4g} ms, and {of['with_ms']:.4g} with a snapshot every "
                  f"{of['steps']} steps: {stall:.3g} ms each."]
    if "study" in found:
        lines += ["", f"The [throughput study]({found['study']}/report.md)."]
    if day["missing"]:
        lines += ["", "## Not there", "", *(f"* {each['part']}: {each['why']}" for each in day["missing"])]
    return "\n".join(lines) + "\n"


def parse_arguments():
    parser = parser_of(__doc__)
    parser.add_argument("--peer-python", required=True, help="a Python that can import torch, torchvision and transformers")
    parser.add_argument("--device", default="cuda", help="as lockstep train takes it")
    parser.add_argument("--tests", metavar="DIR", help="a folder of test programs, *_test, to run on the device")
    parser.add_argument("--parts", type=lambda text: text.split(","), default=PARTS, metavar="A,B", help=f"of {','.join(PARTS)}; all")
    parser.add_argument("--seconds", type=float, default=470, help="for all")
    parser.add_argument("--tiny", action="store_true", help="a rehearsal with small work")
    parser.add_argument("--output", required=True, metavar="DIR")
    return parser.parse_args()


def spend(day, folder):
    nets = TINY if day.arguments.tiny else NETS
    compiled, exports, peer = CompiledPeers(day, nets), Exports(day, folder), Peer(day.arguments)
    with ThreadPoolExecutor() as pool:
        pool.submit(day.part, "self-test", lambda: day.run([day.arguments.lockstep, "env", "--check-devices"], 0.33))
        pool.submit(day.part, "tests", lambda: suites(day, 0.33))
        about = peer.about()
        day.part("device", lambda: about)
        compiled.wait(0.33)
        exports.wait(0.33)
    day.part("speed", lambda: speeds(day, peer, nets, 0.62))
    day.part("compiled", lambda: compiled.rates(0.66))
    day.part("exported", lambda: exports.speeds(peer, 0.72))
    peer.end()
    day.part("predictions", lambda: predictions(day, nets[0], 0.89))
    day.part("snapshots", lambda: snapshots(day, nets[0], 0.93))
    day.part("study", lambda: study(day, 1))


def main():
    arguments = parse_arguments()
    Path(arguments.output).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        tokens = Path(folder, "tokens")
        tokens.mkdir()
        for part in ("train", "test"):
            (tokens / f"{part}.bin").write_bytes(array("H", ((7919 * i) % 50257 for i in range(1 << 17))).tobytes())
        spend(Day(arguments, tokens), folder)
    print(Path(arguments.output, "report.md").read_text())


if __name__ == "__main__":
    main()
