"""Reads a run's results and lists where two runs differ."""

import hashlib
import json

WEIGHTS = ("model.safetensors", "best.safetensors", "model-ema.safetensors")
# What does not depend on time.
SUMMARY = ("parameters_hash", "steps", "skipped_steps", "bad_images", "best", "test_loss", "test_accuracy",
           "test_accuracy5", "stopped_by", "exit", "world_size")
EPOCH = ("epoch", "train_loss", "val_loss", "val_accuracy", "val_accuracy5", "ema_loss", "ema_accuracy", "samples")
LINE = ("epoch", "loss", "accuracy", "accuracy5", "lr", "loss_scale", "nonfinite")


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None


def merged_lines(path):
    """Returns by rank, split and step the line of the highest restart; skips a line that a killed writer did not finish."""
    lines = {}
    for text in path.read_text(errors="replace").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        key = (line["rank"], line["split"], line["step"])
        if key not in lines or line["restart"] >= lines[key]["restart"]:
            lines[key] = line
    return lines


def outcome(run):
    """Returns, by name, everything that must not depend on whether the run was killed."""
    found = {name: digest(run / name) for name in WEIGHTS}
    summary = json.loads((run / "summary.json").read_text())
    found |= {f"summary {name}": summary.get(name) for name in SUMMARY}
    if summary.get("best"):
        found["summary best"] = {name: summary["best"][name] for name in ("epoch", "value")}
    for epoch in summary["epochs"]:
        found[f"summary epoch {epoch['epoch']}"] = {name: epoch.get(name) for name in EPOCH}
    for (rank, split, step), line in merged_lines(run / "metrics.jsonl").items():
        found[f"metrics rank {rank} {split} step {step}"] = {name: line.get(name) for name in LINE}
    return found


def differences(expected, found):
    """Lists the differences."""
    names = sorted(set(expected) | set(found))
    return [f"{name}: {found.get(name, 'missing')}, uninterrupted {expected.get(name, 'missing')}"
            for name in names if expected.get(name, "missing") != found.get(name, "missing")]


def broken_snapshots(run):
    """Lists snapshots under their final name that are incomplete: there must never be one."""
    complaints = []
    for folder in sorted((run / "snapshots").glob("step-*")):
        try:
            manifest = json.loads((folder / "manifest.json").read_text())
            bad = [file["name"] for file in manifest["files"]
                   if digest(folder / file["name"]) != file["sha256"]]
            if bad or manifest["complete"] is not True:
                complaints.append(f"{folder.name}: does not match its manifest: {', '.join(bad)}")
        except (OSError, ValueError, KeyError) as error:
            complaints.append(f"{folder.name}: {error!r}")
    return complaints


def leftovers(run):
    """Lists files that an interrupted save left and no later run removed."""
    folder = run / "snapshots"
    names = [path.name for path in folder.iterdir()] if folder.exists() else []
    return [f"left in snapshots/: {name}" for name in sorted(names)
            if name not in ("LATEST", "best") and not name.startswith("step-")]
