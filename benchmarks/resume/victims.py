"""Finds the processes of a run, waits for a moment in it, and kills."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from commands import stat_of, variables_of

POLL_SECONDS = 0.0005


def processes_of(run):
    """Returns the processes whose command line names this run's folder: {pid: rank, or None for the launcher}."""
    found, name = {}, str(run).encode()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            words = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
            if name not in words or stat_of(Path(f"/proc/{entry}"))[0] in "ZX":
                continue
            variables = variables_of(Path(f"/proc/{entry}"))
        except OSError:
            continue
        is_rank = Path(words[0].decode()).name == "lockstep-train"
        ranks = [int(variable[5:]) for variable in variables if variable.startswith(b"RANK=")]
        found[int(entry)] = (ranks[0] if ranks else 0) if is_rank else None
    return found


def kill(pids):
    """Kills all at once: none sees another die first."""
    opened = []
    for pid in pids:
        try:
            opened.append(os.pidfd_open(pid))
        except ProcessLookupError:
            pass
    for descriptor in opened:
        try:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        except ProcessLookupError:
            pass
    for descriptor in opened:
        os.close(descriptor)
    return len(opened)


@dataclass
class Moment:
    """When to kill which process: a time after the start, or after a point of the n-th save of this attempt."""

    kind: str  # time, or a point of saving: begun, manifest, renamed, latest
    seconds: float
    save: int = 1
    victim: str = "all"  # all, launcher, or a rank's number

    def __str__(self):
        when = f"{self.seconds * 1000:.1f} ms after " + ("the start" if self.kind == "time" else f"{self.kind} of save {self.save}")
        return f"{self.victim} {when}"


POINTS = ("begun", "manifest", "renamed", "latest")


def draw_moment(source, victims, duration, saves):
    """Draws a moment: half of them at any time, half at a point of saving."""
    victim = source.choice(victims)
    if source.random() < 0.5:
        return Moment("time", source.uniform(0, duration), victim=victim)
    return Moment(source.choice(POINTS), source.uniform(0, 0.012) * source.random(), source.randint(1, saves), victim)


class SaveWatch:
    """Counts the saves of an attempt as they pass a point."""

    def __init__(self, run, point):
        self.folder, self.point = run / "snapshots", point
        self.seen = self.now()
        self.count = 0

    def now(self):
        if self.point == "latest":
            try:
                return {(self.folder / "LATEST").read_text()}
            except OSError:
                return set()
        try:
            names = os.listdir(self.folder)
        except OSError:
            return set()
        if self.point == "renamed":
            return {name for name in names if name.startswith("step-")}
        aside = {name for name in names if name.startswith(".step-")}
        if self.point == "manifest":
            aside = {name for name in aside if (self.folder / name / "manifest.json").exists()}
        return aside

    def passed(self, save):
        now = self.now()
        self.count += len(now - self.seen)
        self.seen |= now
        return self.count >= save


def wait_for(moment, run, process, started):
    """Returns True when the moment has come, False when the run ended before it."""
    watch = SaveWatch(run, moment.kind) if moment.kind != "time" else None
    while process.poll() is None:
        if watch is None:
            left = started + moment.seconds - time.monotonic()
            if left <= 0:
                return True
            time.sleep(min(left, 0.01))
        elif watch.passed(moment.save):
            time.sleep(moment.seconds)
            return process.poll() is None
        else:
            time.sleep(POLL_SECONDS)
    return False


def strike(victim, run):
    """Kills the victim; returns the number of processes killed, 0 when it did not exist yet."""
    processes = processes_of(run)
    if victim == "all":
        return kill(processes)
    if victim == "launcher":
        # A run of one process has no launcher.
        launchers = [pid for pid, rank in processes.items() if rank is None]
        return kill(launchers or processes)
    return kill([pid for pid, rank in processes.items() if rank == int(victim)])


def wait_until_gone(run, seconds=20):
    """Returns the processes of a run that still exist after that time."""
    end = time.monotonic() + seconds
    while (left := processes_of(run)) and time.monotonic() < end:
        time.sleep(0.005)
    return left
