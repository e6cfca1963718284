"""Remakes each report in results/ from its samples, and holds results/README.md to the reports."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "results"
LOCKSTEP = str(Path(os.environ["LOCKSTEP_BINARY_DIR"]) / "lockstep")
SOURCES = ("bench.json", "environment.json", "samples.jsonl")
STUDIES = sorted(path.parent.name for path in RESULTS.glob("*/bench.json"))


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def remade(study, folder):
    """Returns the files of a study's folder, all but its sources written anew in `folder`."""
    made = Path(folder) / study
    made.mkdir()
    for name in SOURCES:
        shutil.copy(RESULTS / study / name, made / name)
    subprocess.run([LOCKSTEP, "report", str(made)], check=True, capture_output=True)
    return files_of(made)


class ResultsTest(unittest.TestCase):
    def test_there_are_results(self):
        self.assertTrue(STUDIES, f"{RESULTS} has no study: nothing would be compared")

    def test_each_report_follows_from_its_samples(self):
        for study in STUDIES:
            with self.subTest(study), tempfile.TemporaryDirectory() as folder:
                kept, made = files_of(RESULTS / study), remade(study, folder)
                self.assertEqual(sorted(kept), sorted(made), "remake it: lockstep report results/" + study)
                for name, content in kept.items():
                    self.assertTrue(content == made[name], f"{study}/{name} is another: lockstep report results/{study}")

    def test_no_report_names_a_place_of_this_machine(self):
        for study in STUDIES:
            for name, content in files_of(RESULTS / study).items():
                self.assertIsNone(re.search(rb"/(root|home|tmp|work)/", content), f"{study}/{name}")

    def test_the_page_quotes_the_reports(self):
        page = (RESULTS / "README.md").read_text()
        for study in STUDIES:
            section = re.search(rf"(?ms)^## {study}\b.*?(?=^## |\Z)", page)
            self.assertIsNotNone(section, f"results/README.md has no section ## {study}")
            quotes = re.findall(r"(?m)^> (.+)$", section.group())
            self.assertTrue(quotes, f"{study}: no line of its report is quoted")
            report = (RESULTS / study / "report.md").read_text()
            for quote in quotes:
                self.assertIn(quote, report, f"{study}: its report says something else")


if __name__ == "__main__":
    unittest.main()
