"""Reads what Lockstep 0.2.0 wrote: a run, a snapshot or a bench of an older version stays usable. make_golden.py has made the files.

A newer version may report more, never less or something else.
"""

import json
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
LOCKSTEP = str(Path(os.environ["LOCKSTEP_BINARY_DIR"]) / "lockstep")


def lockstep(*arguments, folder):
    done = subprocess.run([LOCKSTEP, *arguments], cwd=folder, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(arguments)}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def differences(old, new, where=""):
    """Yields where `new` lacks something of `old` or has another value."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in old.items():
            if key in new:
                yield from differences(value, new[key], f"{where}.{key}")
            else:
                yield f"{where}.{key} is missing"
    elif isinstance(old, list) and isinstance(new, list) and all(isinstance(one, dict) and "id" in one for one in old):
        of_id = {other["id"]: other for other in new}  # a grid may have more cells
        for one in old:
            yield from differences(one, of_id.get(one["id"]), f"{where}[{one['id']}]")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (one, other) in enumerate(zip(old, new)):
            yield from differences(one, other, f"{where}[{index}]")
    elif isinstance(old, float) and isinstance(new, (int, float)):
        if abs(old - new) > 1e-9 * max(1, abs(old)):
            yield f"{where} was {old}, is {new}"
    elif old != new:
        yield f"{where} was {old}, is {new}"


class GoldenTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def assert_reports(self, expected, *paths):
        old = json.loads((HERE / expected).read_text())
        new = json.loads(lockstep("report", *paths, "--json", folder=self.folder).splitlines()[-1])
        self.assertEqual(list(differences(old, new)), [])

    def resume(self, name, *limit):
        shutil.copytree(HERE / "runs" / name, self.folder / name, dirs_exist_ok=True)
        before = json.loads((self.folder / name / "summary.json").read_text())
        lines = (self.folder / name / "metrics.jsonl").read_text()
        words = (self.folder / name / "command.txt").read_text().split()[1:]
        at = words.index("--epochs" if "--epochs" in words else "--max-steps")
        words[at:at + 2] = limit
        after = json.loads(lockstep(*words, "--resume", "auto", folder=self.folder).splitlines()[-1])
        self.assertEqual(after["resumed_from"], before["snapshot"])
        self.assertTrue((self.folder / name / "metrics.jsonl").read_text().startswith(lines))
        return before, after

    def test_reports_runs(self):
        shutil.copytree(HERE / "runs", self.folder, dirs_exist_ok=True)
        self.assert_reports("runs_report.json", "serial", "ddp", "pp")

    def test_reports_every_study(self):
        shutil.copytree(HERE / "bench", self.folder / "bench")
        self.assert_reports("bench_report.json", "bench")
        self.assertIn("<svg", (self.folder / "bench/report.html").read_text())

    def test_goes_on_after_the_last_epoch(self):
        for name in ("serial", "ddp"):
            with self.subTest(name):
                before, after = self.resume(name, "--epochs", "3")
                self.assertEqual(after["steps"], 30)
                self.assertEqual([epoch["epoch"] for epoch in after["epochs"]], [1, 2, 3])
                self.assertEqual(list(differences(before["epochs"], after["epochs"][:2])), [])

    def test_goes_on_within_an_epoch(self):
        before, after = self.resume("pp", "--max-steps", "18")
        self.assertEqual(after["steps"], 18)
        self.assertEqual(after["epochs"][0]["train_loss"], before["epochs"][0]["train_loss"])


if __name__ == "__main__":
    unittest.main()
