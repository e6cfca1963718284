"""What must hold after a run was disturbed, and after it was resumed."""

import json
import os
import signal
import time
from pathlib import Path

from commands import processes_where, stat_of
from faults import cases, phases
from resume import outcome

DOCUMENTED = {0, 1, 2, 3, 4, 5, 6, 75}


def shared_memory():
    """Returns the names of ours in /dev/shm; folders of tests are not."""
    return {name for name in os.listdir("/dev/shm") if "lockstep" in name and not name.startswith("lockstep-test-")}


def is_finished(run):
    try:
        return json.loads((run / "summary.json").read_text())["exit"] == 0
    except (OSError, ValueError, KeyError):
        return False


def allowed_codes(case, run, struck):
    """Returns the codes with which the disturbed run may end, as a shell reports them."""
    sent = cases.numbers(case.signal) if struck else []
    if not sent:
        return {0}
    done = {0} if is_finished(run) else set()
    by_signal = {128 + int(number) for number in sent}
    if case.signal == "USR1" and case.target == "command" and case.by_run:
        return by_signal | done  # `lockstep run` does not know what USR1 means to a program
    if case.signal not in cases.STOPS:  # HUP and KILL; one killed rank is started again by our launcher
        restarted = {0} if case.target != "command" and case.has_launcher and not case.by_run else set()
        return by_signal | done | restarted
    if case.signal == "TERM twice" and case.has_launcher:
        return {75} | done | by_signal  # a launcher takes the second one for an order to kill
    return {75} | done


def of_code(case, run, struck, code):
    code = 128 - code if code < 0 else code
    complaints = []
    if code not in DOCUMENTED and not 128 < code < 128 + signal.NSIG:
        complaints.append(f"ended with the undocumented code {code}")
    allowed = allowed_codes(case, run, struck)
    if code not in allowed:
        complaints.append(f"ended with {code}, expected {' or '.join(map(str, sorted(allowed)))}")
    return complaints


def metrics_of(run):
    """Returns each line of metrics.jsonl with its start, split and step; nothing where it is none."""
    path = run / "metrics.jsonl"
    found = []
    for text in path.read_text(errors="replace").splitlines(keepends=True) if path.exists() else ():
        try:
            line = json.loads(text)
            found.append((text, (line["restart"], line["split"], line["step"])))
        except (ValueError, KeyError, TypeError):
            found.append((text, None))
    return found


def of_metrics(run, is_killed):
    """Lists lines of metrics.jsonl that are no metrics, and those that one start wrote twice. A kill may tear a line."""
    complaints, seen = [], set()
    for number, (text, key) in enumerate(metrics_of(run), 1):
        if not is_killed and (key is None or not text.endswith("\n")):
            complaints.append(f"metrics.jsonl:{number}: no metrics: {text[:80]!r}")
        if key is not None and key in seen:
            complaints.append(f"metrics.jsonl:{number}: start {key[0]} wrote {key[1]} of step {key[2]} twice")
        seen.add(key)
    return complaints


def of_repeats(run):
    """Lists what two starts wrote, although the first one was stopped in good order."""
    seen, complaints = {}, []
    for start, split, step in (key for _, key in metrics_of(run) if key):
        if seen.setdefault((split, step), start) != start:
            complaints.append(f"metrics.jsonl: {split} of step {step} by the starts {seen[split, step]} and {start}")
    return complaints


def of_files(run, temporary, shared_before):
    complaints = outcome.broken_snapshots(run)
    complaints += [f"left in TMPDIR: {name}" for name in sorted(os.listdir(temporary))]
    complaints += [f"left in /dev/shm: {name}" for name in sorted(shared_memory() - shared_before)]
    beside = {path.name for path in run.parent.iterdir()} - {run.name, "tmp", "out", "err", "err.resumed", "out.resumed"}
    return complaints + [f"left beside the run: {name}" for name in sorted(beside)]


def of_resumed(run, expected):
    complaints = outcome.differences(expected, outcome.outcome(run))
    complaints += outcome.leftovers(run) if (run / "snapshots").exists() else []
    unfinished = [path for path in run.rglob("*") if path.name.endswith((".new", ".part", ".tmp"))]
    return complaints + [f"left in the run's folder: {path.relative_to(run)}" for path in unfinished]


def of_session(session):
    """Returns the processes of a session that still run."""
    return processes_where(lambda process: (stat := stat_of(process))[0] not in "ZX" and int(stat[3]) == session)


def left_of_session(session, seconds):
    """Returns the processes of a session that still run after that time: a launcher's guardian outlives what it kills."""
    end = time.monotonic() + seconds
    while (left := of_session(session)) and time.monotonic() < end:
        time.sleep(0.005)
    return left


def where_it_hangs(run, session):
    """Describes each process that is left: what it is, and in which call each of its threads waits."""
    lines = []
    for pid in sorted({*of_session(session), *phases.ranks_of(run)}):
        try:
            name = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:60]
            calls = {Path(f"/proc/{pid}/task/{task}/wchan").read_text() or "?" for task in os.listdir(f"/proc/{pid}/task")}
        except OSError:
            continue
        lines.append(f"process {pid} ({name.strip()}) waits in {', '.join(sorted(calls))}")
    return lines
