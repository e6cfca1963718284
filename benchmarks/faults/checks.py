"""What must hold after a run was disturbed, and after it was resumed."""

import json
import os
import signal
from pathlib import Path

from faults import cases, phases
from resume import outcome

DOCUMENTED = {0, 1, 2, 3, 4, 5, 6, 75}


def shared_memory():
    """Returns the names of ours in /dev/shm."""
    return {name for name in os.listdir("/dev/shm") if "lockstep" in name}


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


def of_metrics(run, is_torn_allowed):
    """Lists lines of metrics.jsonl that are no metrics, and those that one start wrote twice."""
    path, complaints, seen = run / "metrics.jsonl", [], set()
    text = path.read_text(errors="replace") if path.exists() else ""
    if text and not text.endswith("\n") and not is_torn_allowed:
        complaints.append("metrics.jsonl: the last line is not whole")
    for number, line in enumerate(text.splitlines(), 1):
        try:
            value = json.loads(line)
            key = (value["restart"], value["split"], value["step"])
        except (ValueError, KeyError, TypeError):
            if not is_torn_allowed:
                complaints.append(f"metrics.jsonl:{number}: no metrics: {line[:80]!r}")
            continue
        if key in seen:
            complaints.append(f"metrics.jsonl:{number}: start {key[0]} wrote {key[1]} of step {key[2]} twice")
        seen.add(key)
    return complaints


def of_repeats(run):
    """Lists what two starts wrote, although the first one was stopped in good order."""
    seen, complaints = {}, []
    for text in (run / "metrics.jsonl").read_text(errors="replace").splitlines():
        line = json.loads(text)
        key = (line["split"], line["step"])
        if key in seen:
            complaints.append(f"metrics.jsonl: {key[0]} of step {key[1]} by the starts {seen[key]} and {line['restart']}")
        seen[key] = line["restart"]
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
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                words = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(words[3]) == session and words[0] not in "ZX":
                found.append(int(entry))
    return found


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
