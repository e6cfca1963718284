"""Runs the programs that a benchmark compares, and tells what else ran meanwhile."""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def parser_of(script, program="lockstep"):
    """Returns the parser of a script's flags, with its text as the help and --lockstep, the program that it runs."""
    parser = argparse.ArgumentParser(description=script, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", default=str(ROOT / "build/release/bin" / program))
    return parser


class Failed(SystemExit):
    """A command that failed; ends the benchmark with the last of its errors, unless that goes on without it."""


def output_of(command):
    """Returns what a command prints."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stderr[-3000:]}")
    return done.stdout


def last_json(printed):
    """Returns the JSON in the last line of what a command printed."""
    return json.loads(printed.strip().split("\n")[-1])


def records_in(text):
    """Returns the JSON objects among the lines of a text."""
    return [json.loads(line) for line in text.split("\n") if line.startswith("{")]


def steps_of(steps, lines):
    """Returns the flags of a training that makes so many steps, and writes so many lines of metrics and nothing else."""
    flags = ["--max-steps", str(steps), "--log-interval", str(steps // lines)]
    return [*flags, "--val-interval", "never", "--snapshot-interval", "never", "--progress", "none"]


def steps_alone(steps, lines):
    """Returns those flags for constant data, of any number of batches."""
    return ["--data", "mock:constant", "--epochs", str(steps), *steps_of(steps, lines)]


def seconds_of_lines(run):
    """Returns the seconds of a step of rank 0 by the lines of such a training's folder, without the first."""
    lines = [json.loads(line) for line in Path(f"{run}/metrics.jsonl").read_text().splitlines()]
    return [line["step_ms"] / 1e3 for line in lines if line["split"] == "train" and line["rank"] == 0][1:]


def seconds_of_step(run):
    """Returns their median."""
    return statistics.median(seconds_of_lines(run))


def stat_of(process):
    """Returns what the kernel says of a process, a folder of /proc, from its state on: then the parent, the group, the session."""
    return (process / "stat").read_text().rpartition(")")[2].split()


def variables_of(process):
    return (process / "environ").read_bytes().split(b"\0")


def processes_where(holds):
    """Returns the processes for which this holds, looked at in their folders of /proc; one that ends meanwhile is none."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if holds(process):
                found.append(int(process.name))
        except OSError:
            pass
    return found


def cpu_model():
    lines = Path("/proc/cpuinfo").read_text().split("\n")
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def setting(*more):
    """Returns the first line of a report: the machine, what else is given, the day."""
    return ", ".join([cpu_model(), f"{os.cpu_count()} cores", *more, time.strftime("%d %B %Y")])


def with_range(values, form):
    """Returns the median with the least and the largest value, each in this format."""
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def ratio_of(over, under):
    """Returns the ratio of medians, and the least and the largest of the ratios of each round."""
    pairs = [a / b for a, b in zip(over, under)]
    return statistics.median(over) / statistics.median(under), min(pairs), max(pairs)


def bold_ratio(over, under):
    """Returns that as a cell of a table."""
    ratio, least, most = ratio_of(over, under)
    return f"**{ratio:.2f}** ({least:.2f} to {most:.2f})"


def aligned(rows):
    """Returns rows of words as a text with columns of equal width, all but the first to the right."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows)


def busy_seconds():
    """Returns the CPU seconds that the whole machine has spent on anything but idling."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    return (sum(fields[:8]) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    """Returns the CPU seconds of this process and of the commands that it has run."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


class SharedTime:
    """The share of the machine that other programs have used since this was made."""

    def __init__(self):
        self.start, self.busy, self.own = time.monotonic(), busy_seconds(), own_seconds()

    def of_others(self):
        others = (busy_seconds() - self.busy) - (own_seconds() - self.own)
        return max(0.0, others) / ((time.monotonic() - self.start) * os.cpu_count())
