#!/usr/bin/env python3
"""Disturbs runs in every phase and way, with descriptors closed and by signals, and checks that nothing hangs or is lost.

    benchmarks/fault_campaign.py --cases 500 --seed 1
    benchmarks/fault_campaign.py --cases 500 --seed 1 --only 31,77      repeat some of them

Each case is one `lockstep train --resume auto` in a folder of its own: serial, dp, ddp and pp over 1, 2 and 4 ranks, started by
`lockstep train` or `lockstep run`, with some of the descriptors 0 to 2 closed, and a signal to the command or to one rank in a phase
that the run's files and processes show. Then: the run ends within --patience seconds, with a code that is documented and right for the
signal (75 for a stop); no process or file is left; metrics.jsonl is whole and every snapshot complete; the same command
without the disturbance ends with 0, and the results equal those of a run that was never disturbed, bit for bit. Prints what it ran
and each failure with its command line; ends with code 1 if there is one.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from commands import aligned, parser_of
from faults import cases, checks, phases
from resume import outcome, sets, victims

TRAIN_IMAGES, TEST_IMAGES = 132, 3000
RESUME_SECONDS = 300  # a whole run, on a busy machine


def parse_arguments():
    parser = parser_of(__doc__)
    parser.add_argument("--cases", type=int, default=500, help="how many cases to draw [500]")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="numbers of cases, separated by commas: of those drawn only these are run")
    parser.add_argument("--patience", type=float, default=10, help="seconds from the signal to the end of the run [10]")
    parser.add_argument("--output", help="a folder in which to keep the runs that failed")
    return parser.parse_args()


@dataclass
class Result:
    case: cases.Case
    command: str = ""
    struck: bool = False
    code: int = 0
    seconds: float = 0.0  # from the signal to the end
    complaints: list = field(default_factory=list)


class Campaign:
    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.sets = folder / "sets"
        sets.write_idx(self.sets, TRAIN_IMAGES, TEST_IMAGES)
        self.references = {}

    def start(self, case, folder, closed, suffix=""):
        """Starts the case's command in its folder, without these descriptors."""
        command = case.command(self.arguments.lockstep, self.sets, folder / "run")
        closing = "".join(f" {number}{'<' if number == '0' else '>'}&-" for number in closed)
        (folder / "tmp").mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(folder / "tmp")}
        with open(folder / f"out{suffix}", "wb") as out, open(folder / f"err{suffix}", "wb") as errors:
            return subprocess.Popen(["bash", "-c", f'exec "$@"{closing}', "bash", *command], stdin=subprocess.DEVNULL, stdout=out,
                                    stderr=errors, env=environment, cwd=folder, start_new_session=True)

    def end_of(self, process, run, seconds):
        """Returns the exit code, or None when it hung; leaves no process of the run, whatever ends this."""
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                self.hanging = checks.where_it_hangs(run, process.pid)
                victims.kill([*victims.processes_of(run), *checks.of_session(process.pid)])
                process.wait()

    def reference(self, case):
        """Returns the results of the same training, undisturbed."""
        if case.way.name not in self.references:
            folder = self.folder / f"reference {case.way.name}"
            process = self.start(case, folder, "")
            code = self.end_of(process, folder / "run", RESUME_SECONDS)
            if code != 0:
                sys.exit(f"{case.way.name}: the undisturbed run ended with {code}:\n{(folder / 'err').read_text()[-2000:]}")
            self.references[case.way.name] = outcome.outcome(folder / "run")
        return self.references[case.way.name]

    def strike(self, case, run, process):
        """Sends the case's signals; returns whether there was somebody to get them."""
        pids = [process.pid] if case.target == "command" else [
            pid for pid, rank in phases.ranks_of(run).items() if rank == int(case.target)]
        for number in cases.numbers(case.signal):
            for pid in pids:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    return False
        return bool(pids)

    def disturb(self, case, folder, result):
        run, shared = folder / "run", checks.shared_memory()
        process = self.start(case, folder, case.closed)
        share = -(-TRAIN_IMAGES // case.way.replicas)
        watch = phases.Watch(case, run, self.sets, -(-share // cases.BATCH_SIZE))
        try:
            if case.signal != "none" and watch.wait(process):
                result.struck = self.strike(case, run, process)
        except BaseException:  # also the end of the campaign
            self.end_of(process, run, 0)
            raise
        begin = time.monotonic()
        is_to_end = result.struck and not (case.signal == "KILL" and case.target != "command")
        code = self.end_of(process, run, self.arguments.patience if is_to_end else RESUME_SECONDS)
        result.seconds = time.monotonic() - begin if is_to_end else 0
        if code is None:
            result.complaints += ["hangs", *self.hanging]
        else:
            result.code = code
            result.complaints += checks.of_code(case, run, result.struck, code)
        if left := {*victims.wait_until_gone(run, 3), *checks.left_of_session(process.pid, 3)}:
            result.complaints += [f"processes left: {sorted(left)}", *checks.where_it_hangs(run, process.pid)]
            victims.kill(left)
        result.complaints += checks.of_files(run, folder / "tmp", shared)
        is_killed = case.signal in ("KILL", "HUP") or case.phase in cases.RESTARTING or code is None
        result.complaints += checks.of_metrics(run, is_killed)
        return is_killed

    def resume(self, case, folder, result, is_killed):
        run = folder / "run"
        code = self.end_of(self.start(case, folder, "", ".resumed"), run, RESUME_SECONDS)
        if code != 0:
            tail = (folder / "err.resumed").read_text(errors="replace")[-800:]
            result.complaints.append(f"resumed, it {'hangs' if code is None else f'ends with {code}'}:\n{tail}")
            result.complaints += self.hanging if code is None else []
            return
        result.complaints += checks.of_metrics(run, is_killed)
        result.complaints += checks.of_resumed(run, self.reference(case))
        if result.struck and case.signal in cases.STOPS and not is_killed and result.code == 75:
            result.complaints += checks.of_repeats(run)

    def run(self, case):
        folder = self.folder / f"case {case.number}"
        self.reference(case)
        folder.mkdir()
        result = Result(case, case.shell_line(case.command(self.arguments.lockstep, self.sets, folder / "run")))
        is_killed = self.disturb(case, folder, result)
        self.resume(case, folder, result, is_killed)
        if not (result.complaints and self.arguments.output):
            subprocess.run(["rm", "-rf", str(folder)], check=True)
        return result


def report(result, arguments):
    print(f"\n{result.case}: code {result.code}\n  {result.command}")
    print("\n".join(f"  {line}" for line in result.complaints[:8]))
    if len(result.complaints) > 8:
        print(f"  and {len(result.complaints) - 8} more")
    print(f"  again: benchmarks/fault_campaign.py --cases {arguments.cases} --seed {arguments.seed} --only {result.case.number}",
          flush=True)


def table(results, column, names):
    """Returns a table of the ways by another property: cases, and how many of them failed."""
    lines = [["", *names, "all"]]
    for way in [way.name for way in cases.WAYS] + ["all"]:
        row = [way]
        for name in [*names, None]:
            found = [result for result in results if way in (result.case.way.name, "all") and name in (column(result), None)]
            failed = sum(bool(result.complaints) for result in found)
            row.append(f"{len(found)}" + (f" ({failed} bad)" if failed else "") if found else "-")
        lines.append(row)
    return aligned(lines)


def show(results, arguments):
    print("\n" + table(results, lambda result: result.case.phase, cases.PHASES + cases.RESTARTING))
    print("\n" + table(results, lambda result: result.case.signal, cases.SIGNALS))
    print("\n" + table(results, lambda result: result.case.closed or "-", ["-", *cases.CLOSED[1:]]))
    stopped = sorted(result.seconds for result in results if result.struck and result.case.signal in cases.STOPS)
    if stopped:
        print(f"\nfrom a stop signal to the end: median {stopped[len(stopped) // 2]:.2f} s, longest {stopped[-1]:.2f} s")
    codes = Counter(128 - result.code if result.code < 0 else result.code for result in results)
    print("codes: " + ", ".join(f"{code}: {count}" for code, count in sorted(codes.items())))
    failed = [result for result in results if result.complaints]
    print(f"{len(results)} cases, {sum(result.struck for result in results)} of them struck, {len(failed)} failed "
          f"(seed {arguments.seed})")
    return len(failed)


def run_all(arguments, folder):
    campaign, results = Campaign(arguments, folder), []
    drawn = cases.draw(arguments.cases, arguments.seed)
    if arguments.only:
        drawn = [drawn[int(number)] for number in arguments.only.split(",")]
    try:
        for case in drawn:
            results.append(campaign.run(case))
            if results[-1].complaints:
                report(results[-1], arguments)
            if len(results) % 25 == 0:
                print(f"{len(results)} cases, {sum(bool(result.complaints) for result in results)} failed", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print(f"\nended after {len(results)} of {len(drawn)} cases")
    return show(results, arguments)


def main():
    arguments = parse_arguments()
    arguments.lockstep = str(Path(arguments.lockstep).resolve())
    for number in (signal.SIGTERM, signal.SIGINT):  # a shell's background job ignores SIGINT, and so would the runs
        signal.signal(number, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as nohup does with this one
    if arguments.output:
        Path(arguments.output).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="lockstep-faults-", dir=arguments.output, ignore_cleanup_errors=True) as folder:
        failed = run_all(arguments, Path(folder).resolve())
        if failed and arguments.output:
            os.rename(folder, f"{folder}-failed")
            Path(folder).mkdir()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
