"""benchmarks/against_pytorch.py names what fails, and goes on."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks/against_pytorch.py"

# Each is told in which nets it fails.
LOCKSTEP = """
net, folder = value_of("--model"), Path(value_of("--output"))
if net in FAILS:
    sys.exit(f"no {net} in Lockstep")
folder.mkdir()
(folder / "metrics.jsonl").write_text('{"split": "train", "rank": 0, "step_ms": 10}\\n' * 6)
"""
PYTORCH = """
net = value_of("--net")
if net in FAILS:
    sys.exit(f"no {net} in PyTorch")
made = {"images": False, "flops_of_a_sample": 100}
print(json.dumps({"flops": 1e9, "copied": 1e9, "instructions": "none"} if "--roof" in words else made if "--make" in words
                 else {"seconds": [9, 0.02, 0.02]}))
"""


class AgainstPyTorch(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def program(self, name, text, fails):
        path = self.folder / name
        path.write_text(f"#!{sys.executable}\nimport json, sys\nfrom pathlib import Path\nFAILS, words = {fails}, sys.argv[1:]\n"
                        "def value_of(flag):\n    return words[words.index(flag) + 1] if flag in words else None\n" + text)
        path.chmod(0o755)
        return path

    def run_with(self, fails_in_lockstep=(), fails_in_pytorch=()):
        """Returns the cells of the table by net, the nets that were kept, and what else was said."""
        command = [sys.executable, SCRIPT, "--only", "resnet18", "vgg19", "--no-compile", "--rounds", "1", "--json", self.folder / "kept.json",
                   "--lockstep", self.program("lockstep", LOCKSTEP, list(fails_in_lockstep)),
                   "--peer-python", self.program("python", PYTORCH, list(fails_in_pytorch))]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        table = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines() if line.startswith("|")]
        kept = [row["net"] for row in json.loads((self.folder / "kept.json").read_text())["rows"]]
        self.assertEqual({len(cells) for cells in table}, {6})
        return {cells[0]: cells[1:] for cells in table}, kept, done.stdout.splitlines()[-2] + done.stderr

    def test_a_net_is_measured_and_kept(self):
        table, kept, said = self.run_with()
        self.assertRegex(table["vgg19"][1], r"^3,200 .*, 1x\d+$")
        self.assertRegex(table["vgg19"][3], r"^\*\*2.00\*\*")
        self.assertEqual(kept, ["resnet18", "vgg19"])
        self.assertRegex(said, "^Over PyTorch: geometric mean of 2 ")

    def test_a_side_that_fails_is_named_and_the_run_goes_on(self):
        table, kept, said = self.run_with(fails_in_lockstep=["resnet18"])
        self.assertRegex(table["resnet18"][1], r"^failed: 1x\d+; 2x\d+$")
        self.assertEqual(table["resnet18"][3], "")
        self.assertEqual(kept, ["vgg19"])
        self.assertRegex(said, "^Over PyTorch: geometric mean of 1 (.|\n)*resnet18: (.|\n)*no resnet18 in Lockstep")

    def test_a_net_that_cannot_be_made_is_named_and_the_run_goes_on(self):
        table, kept, said = self.run_with(fails_in_pytorch=["resnet18"])
        self.assertEqual(table["resnet18"][:2], ["", "failed"])
        self.assertEqual(kept, ["vgg19"])
        self.assertIn("no resnet18 in PyTorch", said)


if __name__ == "__main__":
    unittest.main()
