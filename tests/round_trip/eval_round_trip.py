"""`lockstep eval` finds what PyTorch finds with the same weights on the same images: with Lockstep's weights in a
torch.nn module, and with torchvision's in Lockstep."""

import struct
import tempfile
import unittest
from pathlib import Path

import torch
import torchvision
from safetensors.torch import load_file
from torch import nn

from programs import lockstep

SIDE, CLASSES, TEST = 28, 10, 500
CIFAR_MEAN, CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def write_idx(path, tensor):
    """Writes bytes as MNIST's files have them."""
    header = struct.pack(">HBB", 0, 8, tensor.dim()) + struct.pack(f">{tensor.dim()}I", *tensor.shape)
    path.write_bytes(header + tensor.numpy().tobytes())


def drawn_images(count, generator):
    """Noise with a brighter row for each class: easy to learn, and noisy enough to be mistaken sometimes."""
    labels = torch.randint(CLASSES, (count,), generator=generator, dtype=torch.uint8)
    images = torch.randint(140, (count, SIDE, SIDE), generator=generator, dtype=torch.uint8)
    for image, label in zip(images, labels):
        image[2 * int(label)] += 60
    return images, labels


def mnist_small():
    """The net of that name, with the names of its parameters."""
    return nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 14 * 14, 64),
                         nn.ReLU(), nn.Linear(64, CLASSES))


def judged(model, images, labels):
    """Returns loss and prediction of each sample."""
    with torch.no_grad():
        scores = torch.cat([model.eval()(part) for part in images.split(100)]).double()
    return nn.functional.cross_entropy(scores, labels, reduction="none"), scores.argmax(1), scores


class EvalRoundTrip(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.generator = torch.Generator().manual_seed(5)

    def assert_same(self, found, losses, predicted, scores, labels):
        """Compares every number of the object with Python's."""
        right = predicted == labels
        self.assertEqual(found["samples"], len(labels))
        self.assertEqual(found["accuracy"], right.double().mean().item())
        self.assertEqual(found["accuracy5"], (scores.topk(5, 1)[1] == labels[:, None]).any(1).double().mean().item())
        self.assertAlmostEqual(found["loss"], losses.mean().item(), places=5)
        table = torch.zeros(CLASSES, CLASSES, dtype=torch.long)
        table.index_put_((labels, predicted), torch.ones_like(labels), accumulate=True)
        self.assertEqual(found["confusion"], table.tolist())
        for own in found["classes"]:
            self.assertEqual(own["accuracy"], right[labels == own["class"]].double().mean().item())
        worst = losses.sort(descending=True)[0]
        for sample, loss in zip(found["worst"], worst):
            self.assertAlmostEqual(sample["loss"], loss.item(), places=4)
            index = sample["index"]
            self.assertEqual((sample["class"], sample["predicted"]), (labels[index].item(), predicted[index].item()))
            self.assertAlmostEqual(sample["loss"], losses[index].item(), places=4)

    def test_a_run_has_the_scores_of_its_weights_in_python(self):
        for stem, count in (("train", 1000), ("t10k", TEST)):
            images, labels = drawn_images(count, self.generator)
            write_idx(self.folder / f"{stem}-images-idx3-ubyte", images)
            write_idx(self.folder / f"{stem}-labels-idx1-ubyte", labels)
        run = self.folder / "run"
        lockstep("train", "--data", f"mnist:{self.folder}", "--model", "mnist-small", "--epochs", 4, "--batch-size", 32,
                 "--progress", "none", "--json", "--output", run)
        found = lockstep("eval", "--run", run, "--worst", 25, "--json")
        model = mnist_small()
        model.load_state_dict(load_file(run / "best.safetensors"))
        losses, predicted, scores = judged(model, images[:, None] / 255.0, labels.long())
        self.assertLess(found["accuracy"], 1, "nothing is mistaken, so the test is blind")
        self.assertGreater(found["accuracy"], 0.2)
        self.assert_same(found, losses, predicted, scores, labels.long())

    def test_weights_of_torchvision_on_cifar(self):
        images = torch.randint(256, (TEST, 3, 32, 32), generator=self.generator, dtype=torch.uint8)
        labels = torch.randint(CLASSES, (TEST,), generator=self.generator, dtype=torch.uint8)
        rows = torch.cat([labels[:, None], images.flatten(1)], 1)
        part = torch.cat([rows] * 20).numpy().tobytes()
        for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
            (self.folder / f"{name}.bin").write_bytes(part)
        torch.manual_seed(3)
        model = torchvision.models.resnet18(num_classes=CLASSES)
        torch.save(model.state_dict(), self.folder / "weights.pth")
        found = lockstep("eval", "--weights", self.folder / "weights.pth", "--model", "resnet18", "--data",
                         f"cifar10:{self.folder}", "--worst", 0, "--json")
        mean, std = (torch.tensor(values)[None, :, None, None] for values in (CIFAR_MEAN, CIFAR_STD))
        losses, predicted, _ = judged(model, (images / 255.0 - mean) / std, labels.long())
        self.assertEqual(found["samples"], 20 * TEST)
        self.assertAlmostEqual(found["loss"], losses.mean().item(), places=4)
        self.assertAlmostEqual(found["accuracy"], (predicted == labels).double().mean().item(), places=3)


if __name__ == "__main__":
    unittest.main()
