"""Draws the cases of the campaign: how a run is spread and started, what is closed, which signal comes when, and to whom."""

import random
import shlex
import signal
from dataclasses import dataclass

BATCH_SIZE = 4
FLAGS = ["--model", "mnist-small", "--epochs", "2", "--batch-size", str(BATCH_SIZE), "--log-interval", "3", "--snapshot-interval", "5steps", "--no-rescue",
         "--seed", "7", "--progress", "none"]


@dataclass(frozen=True)
class Way:
    """How a run is spread over ranks and places."""

    name: str
    flags: tuple
    ranks: int = 1
    replicas: int = 1


WAYS = [
    Way("serial", ()),
    Way("dp", ("--parallel", "dp", "--places", "2"), replicas=2),
    Way("ddp in threads", ("--parallel", "ddp", "--places", "2"), replicas=2),
    Way("pp in threads", ("--parallel", "pp", "--places", "2", "--balance", "count")),
    Way("ddp, 2 ranks", ("--parallel", "ddp"), 2, 2),
    Way("pp, 2 ranks", ("--parallel", "pp", "--balance", "count", "--chunks", "2"), 2),
    Way("fsdp, 2 ranks", ("--parallel", "fsdp"), 2, 2),
    Way("ddp, 4 ranks", ("--parallel", "ddp"), 4, 4),
    Way("pp, 4 ranks", ("--parallel", "pp", "--balance", "count", "--chunks", "4"), 4),
    Way("ddp+pp, 4 ranks", ("--parallel", "ddp+pp", "--stages", "2", "--balance", "count", "--chunks", "2"), 4, 2),
]
PHASES = ["started", "loading", "built", "first step", "training", "evaluating", "saving", "last evaluation", "finishing"]
RESTARTING = ["rank has died", "ranks start again", "ranks load again"]
SIGNALS = ["none", "TERM", "INT", "USR1", "TERM twice", "HUP", "KILL"]
STOPS = ("TERM", "INT", "USR1", "TERM twice")
CLOSED = ["", "0", "1", "2", "01", "02", "12", "012"]


@dataclass(frozen=True)
class Case:
    number: int
    way: Way
    by_run: bool    # the ranks are started by `lockstep run`, else by `lockstep train`
    closed: str     # descriptors that are closed at the start
    signal: str
    phase: str
    target: str     # `command`, or a rank's number

    @property
    def has_launcher(self):
        return self.way.ranks > 1

    def command(self, lockstep, sets, run):
        """Returns the command line, as words."""
        train = [lockstep, "train", "--data", f"mnist:{sets}", *FLAGS, *self.way.flags, "--output", str(run), "--resume", "auto"]
        if not self.has_launcher:
            return train
        if self.by_run:
            return [lockstep, "run", "--nproc-per-node", str(self.way.ranks), "--", *train]
        return [*train, "--nproc-per-node", str(self.way.ranks)]

    def shell_line(self, words):
        """Returns the command line for a shell, with what it closes."""
        return " ".join([shlex.join(words), *(f"{number}{'<' if number == '0' else '>'}&-" for number in self.closed)])

    def __str__(self):
        who = "" if self.signal == "none" else f", {self.signal} to {self.target} while {self.phase}"
        closed = f", {' '.join(self.closed)} closed" if self.closed else ""
        return f"case {self.number}: {self.way.name}{' by lockstep run' if self.by_run else ''}{closed}{who}"


def strata():
    """Lists what the cases cover first: each phase with each signal in each way of spreading."""
    found = []
    for way in WAYS:
        found += [(way, name, phase) for phase in PHASES for name in SIGNALS if name != "none"]
        found += [(way, "none", "training")] * len(PHASES)
        if way.ranks > 1:
            found += [(way, name, phase) for phase in RESTARTING for name in STOPS]
    return found


def draw(count, seed):
    """Draws cases: all strata once before any comes again, the rest by chance; the same for the same seed."""
    source = random.Random(seed)
    cases = []
    while len(cases) < count:
        order = strata()
        source.shuffle(order)
        for way, name, phase in order[:count - len(cases)]:
            # Only our own launcher starts ranks again without being told to.
            by_run = way.ranks > 1 and phase not in RESTARTING and source.random() < 0.3
            to_rank = phase not in RESTARTING and name not in ("TERM twice", "HUP") and source.random() < 0.25
            closed = source.choice(CLOSED) if source.random() < 0.6 else ""
            cases.append(Case(len(cases), way, by_run, closed, name, phase,
                              str(source.randrange(way.ranks)) if to_rank else "command"))
    return cases


def numbers(name):
    """Returns the signals that a name stands for, in their order."""
    if name == "none":
        return []
    word, _, twice = name.partition(" ")
    return [getattr(signal, f"SIG{word}")] * (2 if twice else 1)
