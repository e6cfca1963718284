"""Sees that the defaults of ./dev train step back when the user's flags speak."""

import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def train_defaults(*flags):
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", 'source tools/dev_train.sh; train_defaults "$@"', "bash", *flags],
        cwd=ROOT, check=True, capture_output=True, text=True)
    words = done.stdout.split()
    return dict(zip(words[::2], words[1::2]))


class TrainDefaultsTest(unittest.TestCase):
    def test_alone_they_are_the_first_run(self):
        defaults = train_defaults()
        self.assertTrue(defaults.pop("--output").startswith("runs/"))
        self.assertEqual(defaults, {
            "--model": "mnist-small", "--data": "fashion-mnist", "--parallel": "ddp", "--nproc-per-node": "2",
            "--precision": "auto", "--epochs": "3"})

    def test_a_flag_of_the_user_replaces_its_default(self):
        self.assertNotIn("--model", train_defaults("--model", "toy"))
        self.assertNotIn("--model", train_defaults("--model=toy"))
        self.assertNotIn("--output", train_defaults("--output", "here"))

    def test_one_way_to_end_replaces_another(self):
        self.assertNotIn("--epochs", train_defaults("--max-steps", "5"))
        self.assertNotIn("--epochs", train_defaults("--max-time=1m"))

    def test_ranks_belong_to_the_way_of_spreading(self):
        self.assertNotIn("--nproc-per-node", train_defaults("--parallel", "serial"))
        self.assertNotIn("--nproc-per-node", train_defaults("--parallel=dp"))
        self.assertEqual(train_defaults("--parallel", "ddp")["--nproc-per-node"], "2")
        self.assertNotIn("--parallel", train_defaults("--places", "2"))
        self.assertEqual(train_defaults("--nproc-per-node", "4")["--parallel"], "ddp")


if __name__ == "__main__":
    unittest.main()
