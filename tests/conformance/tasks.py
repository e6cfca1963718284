#!/usr/bin/env python3
"""Makes numbers/tasks.txt with Python: tasks.py > numbers/tasks.txt.

The metrics of scikit-learn, and the losses of PyTorch, for outputs and targets by formula.
"""

import warnings

import sklearn
import torch
import torch.nn.functional as F
from formulas import formula, show
from sklearn import metrics

IGNORED = -100


def whole(count, start, below):
    """Returns numbers from 0 to below - 1, every sixth of them ignored."""
    numbers = ((formula(count, start) + 1) * (below / 2)).floor().clamp(max=below - 1).long()
    numbers[::6] = IGNORED
    return numbers


def regression():
    output = (formula(39, 0.5) * 2).view(13, 3)
    target = formula(39, 1.5).view(13, 3)
    # A mean that is large against what varies.
    output, target = (numbers + torch.tensor([0.0, 1.0, 1000.0]) for numbers in (output, target))
    flat = output.flatten(), target.flatten()
    errors = [metrics.mean_absolute_error(*flat), metrics.root_mean_squared_error(*flat)]
    losses = [F.mse_loss(output, target), F.l1_loss(output, target), F.huber_loss(output, target)]
    return [loss.item() for loss in losses] + errors + [metrics.r2_score(target, output)]


def reconstruction():
    output, target = formula(52, 0.5) * 3, formula(52, 1.5) / 2 + 0.5
    predicted = output.sigmoid()
    return [
        F.binary_cross_entropy_with_logits(output, target).item(),
        metrics.mean_absolute_error(target, predicted),
        metrics.root_mean_squared_error(target, predicted),
    ]


def tokens():
    scores, target = (formula(13 * 5 * 11, 0.5) * 3).view(13, 5, 11).float(), whole(65, 1.5, 11)
    loss = F.cross_entropy(scores.view(65, 11).double(), target)
    return [loss.item(), loss.exp().item(), loss.item() / torch.tensor(2.0).double().log().item()]


def labels():
    # Rounded, so that some scores are equal; nobody has the last label.
    logits = ((formula(52, 0.5) * 8).round() / 4).view(13, 4)
    target = (formula(52, 2.5).view(13, 4) > torch.tensor([-0.5, 0.0, 0.5, 2.0])).int()
    predicted = (logits > 0).int()
    return [
        F.binary_cross_entropy_with_logits(logits, target.double()).item(),
        metrics.f1_score(target, predicted, average="micro"),
        metrics.f1_score(target, predicted, average="macro"),
        metrics.average_precision_score(target, logits, average="macro"),
        *metrics.average_precision_score(target, logits, average=None),
    ]


def segmentation():
    # The last of the four classes is nowhere.
    scores = (formula(13 * 4 * 6, 0.5) * 3).view(13, 4, 2, 3)
    scores[:, 3] -= 100
    target = whole(78, 1.5, 3).view(13, 2, 3)
    counted = target != IGNORED
    asked, predicted = target[counted], scores.argmax(1)[counted]
    return [
        F.cross_entropy(scores, target).item(),
        metrics.jaccard_score(asked, predicted, average="macro"),
        metrics.accuracy_score(asked, predicted),
        *metrics.jaccard_score(asked, predicted, average=None),
    ]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    tasks = regression, reconstruction, tokens, labels, segmentation
    made_with = f"torch {torch.__version__}, scikit-learn {sklearn.__version__}"
    show([(task.__name__.capitalize(), task()) for task in tasks], made_with)
