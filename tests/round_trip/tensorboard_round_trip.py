"""Python's tensorboard reads the events of `lockstep train --tensorboard` and `lockstep report --tensorboard` as
metrics.jsonl has them."""

import json
import math
import tempfile
import unittest
from pathlib import Path

import numpy
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from programs import lockstep

# Of a line of metrics.jsonl, what is not measured.
PLACE = {"v", "time", "elapsed", "rank", "restart", "epoch", "step", "split", "nonfinite"}


def train(run, *flags):
    lockstep("train", "--data", "mock", "--batch-size", 8, "--log-interval", 2, "--progress", "none", "--json",
             "--limit-train-batches", 6, "--output", run, "--tensorboard", *flags)


def recorded(run):
    """The curves of a run: of each name the values by step, the last start's where several have one."""
    curves = {}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        fields = json.loads(line)
        for name, value in fields.items():
            if name in PLACE or (value is None and name not in fields.get("nonfinite", [])):
                continue
            value = math.nan if value is None else float(numpy.float32(value))
            curves.setdefault(f"{fields['split']}/{name}", {})[fields["step"]] = value
    return curves


def shown(folder):
    """The curves that TensorBoard has of a folder: of each name the list of steps and values."""
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


class TensorBoardRoundTrip(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.run = Path(temporary.name) / "run"

    def assert_shows(self, folder, curves):
        found = shown(folder)
        self.assertEqual(sorted(found), sorted(curves))
        for tag, points in curves.items():
            self.assertEqual(found[tag], sorted(points.items()), tag)

    def files(self):
        return sorted((self.run / "tensorboard").iterdir())

    def test_a_run_is_shown_as_it_was_recorded(self):
        train(self.run, "--epochs", 2, "--nproc-per-node", 2, "--model-ema")
        curves = recorded(self.run)
        self.assertGreaterEqual(set(curves), {"train/loss", "train/lr", "train/samples_per_s", "val/accuracy", "val-ema/loss"})
        self.assertEqual(list(curves["train/loss"]), [2, 4, 6, 8, 10, 12])
        self.assertEqual(len(self.files()), 1, "rank 0 alone writes")
        self.assert_shows(self.run / "tensorboard", curves)

    def test_steps_after_the_snapshot_are_shown_once(self):
        train(self.run, "--epochs", 2, "--val-interval", "never", "--snapshot-interval", "6steps")
        (newest,) = (self.run / "snapshots").glob("step-*12")
        for snapshot in newest.iterdir():
            snapshot.unlink()
        newest.rmdir()
        (self.run / "snapshots/LATEST").write_text("step-00000006\n")
        train(self.run, "--epochs", 2, "--val-interval", "never", "--resume", "auto", "--log-interval", 3)
        self.assertEqual(len(self.files()), 2)
        before = [step for step, _ in shown(self.files()[0])["train/loss"]]
        self.assertEqual(before, [2, 4, 6, 8, 10, 12])
        steps = [step for step, _ in shown(self.run / "tensorboard")["train/loss"]]
        self.assertEqual(steps, [2, 4, 6, 9, 12])

    def test_a_recorded_run_is_converted_afterwards(self):
        train(self.run, "--epochs", 1)
        lockstep("report", self.run, "--tensorboard", self.run.parent / "events", "--json")
        self.assert_shows(self.run.parent / "events/run", recorded(self.run))


if __name__ == "__main__":
    unittest.main()
