"""Waits for a phase of a run, as its files and processes show it."""

import json
import os
import signal
import time
from pathlib import Path

from commands import variables_of
from resume import victims

POLL_SECONDS = 0.0005
LONGEST_SECONDS = 120  # a guard: a run that is not disturbed ends long before


def train_lines(run):
    """Returns the steps of the train lines, and how many other lines there are."""
    try:
        text = (run / "metrics.jsonl").read_text(errors="replace")
    except OSError:
        return [], 0
    lines = [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines() if line.startswith("{") and line.endswith("}")]
    steps = [line["step"] for line in lines if line["split"] == "train"]
    return steps, len(lines) - len(steps)


def ranks_of(run):
    return {pid: rank for pid, rank in victims.processes_of(run).items() if rank is not None}


def variable_of(pid, name):
    try:
        for variable in variables_of(Path(f"/proc/{pid}")):
            if variable.startswith(name + b"="):
                return variable[len(name) + 1:].decode()
    except OSError:
        pass
    return ""


def reads_data(pid, sets):
    """True if the process has a file of the data set open."""
    try:
        return any(os.readlink(f"/proc/{pid}/fd/{number}").startswith(str(sets)) for number in os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return False


class Watch:
    """Follows one run through its phases."""

    def __init__(self, case, run, sets, steps_an_epoch):
        self.case, self.run, self.sets, self.steps = case, run, sets, steps_an_epoch
        self.has_read, self.dead = set(), None
        self.begin = time.monotonic()

    def wait(self, process):
        """Returns True when the phase is there, False when the run has ended before."""
        while process.poll() is None:
            if self.is_there():
                return process.poll() is None
            if time.monotonic() - self.begin > LONGEST_SECONDS:
                return False
            time.sleep(POLL_SECONDS)
        return False

    def is_there(self):
        return getattr(self, self.case.phase.replace(" ", "_"))()

    def all_ranks(self, condition, ranks=None):
        found = ranks_of(self.run) if ranks is None else ranks
        return len(found) >= self.case.way.ranks and all(condition(pid) for pid in found)

    def started(self):
        return self.all_ranks(lambda pid: True)

    def loading(self):
        return any(reads_data(pid, self.sets) for pid in ranks_of(self.run))

    def built(self):
        """All have read the data; the model is being built, or is."""
        found = ranks_of(self.run)
        reading = {pid for pid in found if reads_data(pid, self.sets)}
        self.has_read |= reading
        return (bool(self.has_read) and not reading) or self.first_step()

    def first_step(self):
        return (self.run / "config.toml").exists()

    def training(self):
        return len(train_lines(self.run)[0]) > 2

    def evaluating(self):
        steps, others = train_lines(self.run)
        return others == 0 and self.steps in steps

    def saving(self):
        try:
            return any(name.startswith(".step-") for name in os.listdir(self.run / "snapshots"))
        except OSError:
            return False

    def last_evaluation(self):
        return 2 * self.steps in train_lines(self.run)[0]

    def finishing(self):
        return (self.run / "model.safetensors").exists() or (self.run / "summary.json").exists()

    def rank_has_died(self):
        """Kills a rank in mid-training and waits until it has gone."""
        if self.dead is None and self.training():
            found = {rank: pid for pid, rank in ranks_of(self.run).items()}
            self.dead = found.get(self.case.number % self.case.way.ranks)
            if self.dead is not None:
                os.kill(self.dead, signal.SIGKILL)
        return self.dead is not None and self.dead not in ranks_of(self.run)

    def born_again(self):
        return [pid for pid in ranks_of(self.run) if variable_of(pid, b"TORCHELASTIC_RESTART_COUNT") not in ("", "0")]

    def ranks_start_again(self):
        return self.rank_has_died() and bool(self.born_again())

    def ranks_load_again(self):
        return self.rank_has_died() and any(reads_data(pid, self.sets) for pid in self.born_again())
