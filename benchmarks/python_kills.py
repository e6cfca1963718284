#!/usr/bin/env python3
"""Kills, stops and hangs ranks of Python that train by DDP over the backend "lockstep", and checks that nothing is lost or left.

    PYTHONPATH=build/release/python benchmarks/python_kills.py --strikes 200 --seed 1 [--ranks 2] [--json FILE]

Trainings of some hundred steps run under `lockstep run --max-restarts`, and are struck 20 times each: a rank gets SIGKILL (60 %), is
stopped by SIGSTOP (20 %), or computes or sleeps for ever (20 %), in a random moment of a random step, or while it loads torch. Then:

- the launcher names that rank, and what happened to it;
- after a kill, the peers that learn of it by an error name that rank; all ranks have ended within a second, after a hang within the
  timeout and --slack;
- all ranks start again, and go on from the step that was saved;
- there is no other restart, no process of the attempt, and no new name in /dev/shm;
- at the end the weights have the same bits as those of a training that nobody disturbed, and no process or file is left.

Prints each failure, and a table of the times. Ends with code 1 if something failed.
"""

import json
import os
import random
import re
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from commands import aligned, parser_of, processes_where, setting, variables_of

PROGRAM = Path(__file__).resolve().parent / "faults/ddp_rank.py"
STRIKES, STEPS_A_STRIKE = 20, 40  # of one training
HANG_SECONDS = 1.5
LONGEST_SECONDS = 600  # a guard, on a busy machine
KINDS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP, "computes": signal.SIGUSR1, "sleeps": signal.SIGUSR2}
WEIGHTS = {"killed": 6, "stopped": 2, "computes": 1, "sleeps": 1}
MARK = "PYTHON_KILLS"


def parse_arguments():
    parser = parser_of(__doc__)
    parser.add_argument("--strikes", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--slack", type=float, default=2.5, help="seconds from the timeout of a hang to the end of all ranks [2.5]")
    parser.add_argument("--json", help="a file for the times")
    return parser.parse_args()


@dataclass
class Mark:
    """What a rank's file says of it."""

    process: int
    attempt: int
    first: int
    step: int


@dataclass
class Strike:
    kind: str
    rank: int
    attempt: int
    begin: float = 0.0
    noticed: list = field(default_factory=list)  # seconds, by the peers' own errors
    ended: float = 0.0  # seconds until no rank of the attempt was left
    resumed: float = 0.0  # seconds until all ranks had made a step again


class Training:
    """One training, in a folder of its own."""

    def __init__(self, arguments, folder, steps):
        self.ranks, self.folder = arguments.ranks, folder
        (folder / "run").mkdir(parents=True)
        (folder / "tmp").mkdir()
        command = [arguments.lockstep, "run", "-np", str(self.ranks), "--max-restarts", "1000", "--hang-timeout", f"{HANG_SECONDS}",
                   "--log-line-prefix=", PROGRAM, folder / "run", str(steps)]
        environment = os.environ | {"PYTHON_EXEC": sys.executable, "TMPDIR": str(folder / "tmp"), MARK: str(folder),
                                    "TORCHINDUCTOR_CACHE_DIR": str(folder / "torch")}  # torch leaves that
        with open(folder / "err", "wb") as errors:
            self.launcher = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, env=environment)

    def marks(self):
        """Returns what the ranks' files say; fewer at the start."""
        found = []
        for rank in range(self.ranks):
            try:
                words = (self.folder / f"run/rank-{rank}").read_text().split()
                found.append(Mark(*map(int, words)))
            except (OSError, ValueError, TypeError):  # not there, or being written
                pass
        return found

    def wait_for(self, holds):
        """Returns the ranks' marks for which this holds; None if the training ends before."""
        deadline = time.monotonic() + LONGEST_SECONDS
        while time.monotonic() < deadline:
            marks = self.marks()
            if len(marks) == self.ranks and holds(marks):
                return marks
            if self.launcher.poll() is not None:
                return None
            time.sleep(0.001)
        raise TimeoutError(f"no step within {LONGEST_SECONDS} s")

    def processes(self):
        wanted = f"{MARK}={self.folder}".encode()
        return [pid for pid in processes_where(lambda process: wanted in variables_of(process)) if pid != os.getpid()]

    def errors(self):
        return (self.folder / "err").read_text(errors="replace")

    def end(self):
        """Leaves no process of it, whatever ends this."""
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.launcher.wait()


def has_trained(attempt, more):
    """Returns the condition that all ranks of an attempt, or of a later one, have made so many steps."""
    return lambda marks: all(mark.attempt >= attempt and mark.first >= 0 and mark.step >= mark.first + more for mark in marks)


def wait_for_the_end(files, seconds):
    """Waits for the processes of these descriptors to end; returns how many have not."""
    deadline, left = time.monotonic() + seconds, list(files)
    while left and time.monotonic() < deadline:
        ended, _, _ = select.select(left, [], [], deadline - time.monotonic())
        left = [file for file in left if file not in ended]
    return len(left)


class Campaign:
    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.source = random.Random(arguments.seed)
        self.strikes, self.complaints, self.trainings = [], [], 0
        self.shared = set(os.listdir("/dev/shm"))
        self.steps = STRIKES * STEPS_A_STRIKE
        self.expected = self.undisturbed()

    def undisturbed(self):
        training = Training(self.arguments, self.folder / "undisturbed", self.steps)
        try:
            code = training.launcher.wait(LONGEST_SECONDS)
        finally:
            training.end()
        if code != 0:
            sys.exit(f"the undisturbed training ended with {code}:\n{training.errors()[-2000:]}")
        return (training.folder / "run/result").read_text()

    def run(self):
        while len(self.strikes) < self.arguments.strikes:
            self.trainings += 1
            training = Training(self.arguments, self.folder / str(self.trainings), self.steps)
            try:
                self.disturb(training)
            except TimeoutError as failure:
                self.complain(training, str(failure))
            finally:
                training.end()
            print(f"{len(self.strikes)} strikes, {len(self.complaints)} complaints", file=sys.stderr, flush=True)

    def complain(self, training, text):
        self.complaints.append(f"training {training.folder.name}: {text}")
        print(self.complaints[-1], flush=True)

    def disturb(self, training):
        count = min(STRIKES, self.arguments.strikes - len(self.strikes))
        struck = [strike for attempt in range(count) if (strike := self.strike(training, attempt))]
        code = training.launcher.wait(LONGEST_SECONDS)
        self.check_end(training, code, struck)

    def moment(self, training, attempt):
        """Waits for a moment of this attempt; returns the marks, or None if the training ends before."""
        if attempt == 0 and self.source.random() < 0.5:  # a later one has to make a step, else the launcher gives up
            marks = training.wait_for(lambda marks: True)
            time.sleep(self.source.uniform(0, 1.5))
            return marks
        marks = training.wait_for(has_trained(attempt, self.source.randint(1, STEPS_A_STRIKE // 4)))
        time.sleep(self.source.uniform(0, 0.005))
        return marks

    def strike(self, training, attempt):
        """Strikes once, and waits until all ranks train again; returns what happened, None if the training ended before."""
        rank = self.source.randrange(self.arguments.ranks)
        kind = self.source.choices(list(WEIGHTS), WEIGHTS.values())[0]
        marks = self.moment(training, attempt)
        if marks is None:
            return None
        # Before the first step a rank is not watched for hangs.
        strike = Strike(kind if min(mark.first for mark in marks) >= 0 else "killed", rank, marks[rank].attempt)
        try:
            files = [os.pidfd_open(mark.process) for mark in marks]
        except ProcessLookupError:  # the last step was made
            return None
        strike.begin = time.monotonic()
        signal.pidfd_send_signal(files[rank], KINDS[strike.kind])
        left = wait_for_the_end(files, LONGEST_SECONDS)
        strike.ended = time.monotonic() - strike.begin
        for file in files:
            os.close(file)
        resumed = training.wait_for(has_trained(strike.attempt + 1, 1))
        strike.resumed = time.monotonic() - strike.begin
        self.strikes.append(strike)
        self.check(training, strike, left, marks, resumed)
        return strike

    def check(self, training, strike, left, marks, resumed):
        limit = 1 if strike.kind == "killed" else HANG_SECONDS + self.arguments.slack
        if left or strike.ended > limit:
            self.complain(training, f"{strike}: {left} ranks have not ended within {limit} s")
        if resumed is None:
            return self.complain(training, f"{strike}: it ended, and was not started again:\n{training.errors()[-1500:]}")
        before = max(mark.step for mark in marks)
        if not all(before - 1 <= mark.first for mark in resumed):
            self.complain(training, f"{strike}: it went on from step {resumed[0].first}, after step {before}")
        for path in (training.folder / "run").glob(f"noticed-{strike.attempt}-*"):
            when, text = path.read_text().split(" ", 1)
            if strike.kind == "killed":
                strike.noticed.append(float(when) - strike.begin)
                if f"rank {strike.rank} " not in text or "has ended" not in text:
                    self.complain(training, f"{strike}: a peer says: {text}")
        if new := set(os.listdir("/dev/shm")) - self.shared:
            self.complain(training, f"{strike}: left in /dev/shm: {sorted(new)}")

    def check_end(self, training, code, struck):
        errors = training.errors()
        if code != 0:
            return self.complain(training, f"it ended with {code}:\n{errors[-1500:]}")
        named = re.findall(r"restart \d+ of \d+: rank (\d+) of \d+ \(host [^)]*\) (was killed by SIGKILL|hangs: it is stopped|hangs: it )", errors)
        hows = {"killed": "was killed by SIGKILL", "stopped": "hangs: it is stopped", "computes": "hangs: it ", "sleeps": "hangs: it "}
        wanted = [(str(strike.rank), hows[strike.kind]) for strike in struck]
        if named != wanted:
            differing = next((i for i, pair in enumerate(zip(named, wanted)) if pair[0] != pair[1]), min(len(named), len(wanted)))
            self.complain(training, f"of {len(named)} restarts and {len(wanted)} strikes, number {differing + 1} differs: "
                                    f"{named[differing:differing + 1]}, not {wanted[differing:differing + 1]}")
        if (training.folder / "run/result").read_text() != self.expected:
            self.complain(training, "the weights are others than those of the undisturbed training")
        if left := training.processes():
            self.complain(training, f"processes left: {left}")
        files = {path.name for path in (training.folder / "run").iterdir() if not path.name.startswith("noticed-")}
        usual = {"checkpoint", "result", *(f"rank-{rank}" for rank in range(self.arguments.ranks))}
        if files != usual or list((training.folder / "tmp").iterdir()):
            self.complain(training, f"files left: {sorted(files - usual)} and {os.listdir(training.folder / 'tmp')}")


def seconds_of(values):
    return f"{statistics.median(values):.2f}, {max(values):.2f}" if values else "-"


def report(campaign, arguments, seconds):
    rows = [["", "strikes", "peers' errors, s", "all have ended, s", "all train again, s"]]
    by_kind = defaultdict(list)
    for strike in campaign.strikes:
        by_kind[strike.kind].append(strike)
    for kind in KINDS:
        found = by_kind[kind]
        noticed = [each for strike in found for each in strike.noticed]
        rows.append([kind, str(len(found)), f"{seconds_of(noticed)} of {len(noticed)}",
                     *(seconds_of([getattr(strike, name) for strike in found]) for name in ("ended", "resumed"))])
    print(f"\n{setting(f'{arguments.ranks} ranks', f'seed {arguments.seed}')}: median and longest\n{aligned(rows)}")
    print(f"{len(campaign.strikes)} strikes in {campaign.trainings} trainings and {seconds:.0f} s: {len(campaign.complaints)} complaints")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps([vars(strike) for strike in campaign.strikes], indent=1))


def main():
    arguments = parse_arguments()
    arguments.lockstep = str(Path(arguments.lockstep).resolve())
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="python-kills-") as folder:
        campaign = Campaign(arguments, Path(folder).resolve())
        campaign.run()
    report(campaign, arguments, time.monotonic() - begin)
    return 1 if campaign.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
