#!/usr/bin/env python3
"""Makes mistakes of ordering in the code, one at a time, and shows which tests on the emulated accelerator find each.

    tests/accelerator/mutants.py FOLDER                 a clone and its build in FOLDER, which stay
    tests/accelerator/mutants.py FOLDER --only 3,7      some of them

Each mutant leaves out an event, moves a wait, swaps a stream or uses a buffer too early. Found: a test fails, faults or does not
end. Ends with code 1 if one is not found. Takes a minute a mutant; mutants of the last commit.
"""

import argparse
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SECONDS = 240  # of a test program, which takes a few
ON_DEVICES = {"LOCKSTEP_TEST_DEVICE": "emulated"}
PROGRAMS = {"accelerator_test": {}, "sharded_optim_test": ON_DEVICES, "sync_batch_norm_test": ON_DEVICES,
            "transparency_test": {**ON_DEVICES, "GTEST_FILTER": "-*ResNet*"}}


@dataclass
class Mutant:
    name: str
    file: str
    old: str
    new: str
    programs: tuple = ("accelerator_test",)


COPIER = "lockstep/device/accelerator.cpp"
STAGING = "lockstep/comm/device/staging_thread.cpp"
CHANNEL = "lockstep/comm/device/nccl_channel.cpp"
COPY = "lockstep/train/snapshot/host_copy.cpp"
SYNC_BATCH_NORM = "lockstep/parallel/sync_batch_norm/sync_batch_norm.cpp"
DDP = ("accelerator_test", "transparency_test")
PIPELINES = ("accelerator_test", "transparency_test")

MUTANTS = [
    Mutant("the batch is computed with before its copy has come", COPIER, "  wait_for(current, *stream_);\n", ""),
    Mutant("the batch's memory is given away while it is computed with", COPIER, "  copy.record_stream(current);\n", ""),
    Mutant("no stream waits for an event", COPIER, "  event.block(waiting);\n", ""),
    Mutant("the event is recorded on the stream that waits", COPIER, "  event.record(awaited);\n", "  event.record(waiting);\n"),
    Mutant("a gradient leaves before it is computed", STAGING, "      wait_for(*side_, current_stream(device));\n", ""),
    Mutant("the host reduces before the gradient has come", STAGING, "  if (side_) arrived_ = recorded(*side_);\n", ""),
    Mutant("arrival is asked of another stream", STAGING, "arrived_ = recorded(*side_)",
           "arrived_ = recorded(current_stream(side_->device()))"),
    Mutant("the average is used before it is back", STAGING, "  if (returned_) returned_->block(current_stream(returned_->device()));\n",
           ""),
    Mutant("a message is begun out of turn", STAGING, "!waiting.empty() && waiting.front()->has_arrived()", "!waiting.empty()"),
    Mutant("NCCL takes the gradient before it is computed", CHANNEL, "  wait_for(stream_, current_stream(device_));\n", ""),
    Mutant("the end of a call is recorded on the computing stream", CHANNEL, "  call->ended.record(stream_);\n",
           "  call->ended.record(current_stream(device_));\n"),
    Mutant("nobody waits for NCCL", CHANNEL, "    call_->ended.block(current_stream(channel_->device_));\n", ""),
    Mutant("memory that NCCL reads is given away", CHANNEL, "    if (tensor.defined()) tensor.record_stream(stream_);\n",
           "    static_cast<void>(tensor);\n"),
    Mutant("a snapshot copies before the step is computed", COPY, "      wait_for(found->second, current_stream(device));\n", ""),
    Mutant("the next step changes what is copied", COPY, "    arrival.block(current_stream(stream.device()));\n", ""),
    Mutant("the snapshot is written before its copy has come", COPY,
           "  for (const c10::Event& arrival : arrivals_) arrival.synchronize();\n", ""),
    Mutant("the copy's end is recorded on the computing stream", COPY, "    arrival.record(stream);\n",
           "    arrival.record(current_stream(stream.device()));\n"),
    Mutant("a pinned batch is filled again early", "lockstep/data/batch.cpp", "  return !form.pinned && is_held_by_nobody_else",
           "  return is_held_by_nobody_else"),
    Mutant("workers compute on other streams than the caller", "lockstep/parallel/place/thread_modes.cpp",
           "    c10::impl::getDeviceGuardImpl(stream.device_type())->exchangeStream(stream);\n", "    static_cast<void>(stream);\n"),
    Mutant("all devices draw from one generator", "lockstep/parallel/operators/random_stream.cpp", ".defaultGenerator(device).clone();",
           ".defaultGenerator(device);"),
    Mutant("the copier's streams wait the other way round", COPIER, "  wait_for(current, *stream_);\n", "  wait_for(*stream_, current);\n"),
    Mutant("the staged copy is waited for, not the gradient", STAGING, "      wait_for(*side_, current_stream(device));\n",
           "      wait_for(current_stream(device), *side_);\n"),
    Mutant("NCCL's stream is waited for before it has begun", CHANNEL, "  wait_for(stream_, current_stream(device_));\n",
           "  wait_for(current_stream(device_), stream_);\n"),
    Mutant("memory that NCCL writes is given away", CHANNEL, "  for (const torch::Tensor& tensor : tensors)\n",
           "  for (const torch::Tensor& tensor : std::vector<torch::Tensor>{tensors.back()})\n"),
    Mutant("the averages are used before NCCL has them", "lockstep/parallel/ddp/reducer_pass.cpp", "      bucket.step.work.wait();\n", "",
           DDP),
    Mutant("a stage computes with what has not come", "lockstep/parallel/pipeline/links.cpp", "group_.recv(flat(tensor), from).wait();",
           "static_cast<void>(group_.recv(flat(tensor), from));", PIPELINES),
    Mutant("batch norm merges statistics that have not come", SYNC_BATCH_NORM, "  group.all_gather(rows.view({-1}), own).wait();\n",
           "  static_cast<void>(group.all_gather(rows.view({-1}), own));\n", ("sync_batch_norm_test",)),
    Mutant("batch norm's gradient uses sums that have not come", SYNC_BATCH_NORM, "  group.all_reduce(sums).wait();\n",
           "  static_cast<void>(group.all_reduce(sums));\n", ("sync_batch_norm_test",)),
    Mutant("gradients are clipped by a part of their norm", "lockstep/parallel/optim/clip_grad_norm.cpp",
           "  group.all_reduce(sum).wait();\n  return sum;", "  static_cast<void>(group.all_reduce(sum));\n  return sum;"),
    Mutant("messages up and down share a stream", "lockstep/comm/device/nccl_backend.cpp", "from < to ? *up_ : *down_", "from < to || to >= 0 ? *up_ : *down_",
           PIPELINES),
    Mutant("an aborted call passes for a finished one", CHANNEL, "    channel_->throw_if_aborted(call_->what);\n", ""),
    Mutant("the watchdog never finds a call late", CHANNEL, "  bool is_late = false;\n  if (reason.empty()) {", "  bool is_late = false;\n  if (false) {"),
    Mutant("dropout draws outside of its stream", "lockstep/parallel/operators/random_stream.cpp",
           "  library.impl(\"dropout\", TORCH_FN(drop_from_stream));\n", ""),
]


def run(command, folder, **options):
    return subprocess.run(command, cwd=folder, text=True, capture_output=True, check=False, **options)


def build(folder, programs):
    done = run(["./dev", "build", *programs], folder, env={**os.environ, "LOCKSTEP_WERROR": "OFF"})
    if done.returncode != 0:
        raise SystemExit(f"does not build:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")


def failure_of(folder, program):
    """Returns what a program's failure names; None if it passes."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **PROGRAMS[program]}
    try:
        done = run([str(folder / "build/release/bin" / program), "--gtest_brief=1"], folder, env=environment, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return "does not end"
    if done.returncode == 0:
        return None
    failed = re.findall(r"^\[  FAILED  \] ([\w./]+)", done.stdout, re.MULTILINE)
    return f"{len(set(failed))} tests, the first {failed[0]}" if failed else f"ends with {done.returncode}"


def found_by(folder, mutant):
    path = folder / mutant.file
    text = path.read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        raise SystemExit(f"{mutant.file} has {text.count(mutant.old)} times:\n{mutant.old}")
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        build(folder, mutant.programs)
        for program in mutant.programs:
            if failure := failure_of(folder, program):
                return f"{program}: {failure}"
        return None
    finally:
        path.write_text(text, encoding="utf-8")


def check_unchanged(folder, programs):
    """A program that fails as it is would find every mutant."""
    build(folder, sorted(programs))
    for program in sorted(programs):
        if failure := failure_of(folder, program):
            raise SystemExit(f"{program} fails without any mutant: {failure}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", help="numbers, separated by commas")
    arguments = parser.parse_args()
    clone = arguments.folder / "lockstep"
    if not clone.exists():
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    numbers = [int(each) for each in arguments.only.split(",")] if arguments.only else range(1, len(MUTANTS) + 1)
    check_unchanged(clone, {program for number in numbers for program in MUTANTS[number - 1].programs})
    missed = 0
    for number in numbers:
        mutant = MUTANTS[number - 1]
        finder = found_by(clone, mutant)
        missed += finder is None
        print(f"{number:3}  {'found ' if finder else 'MISSED'}  {mutant.name}: {finder or 'every test passes'}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
