#!/usr/bin/env python3
"""Makes mistakes of ordering in the code, one at a time, and shows which tests on the emulated accelerator find each.

    tests/accelerator/mutants.py FOLDER                 a clone and its build in FOLDER, which stay
    tests/accelerator/mutants.py FOLDER --only 3,7      some of them
    tests/accelerator/mutants.py FOLDER --write         puts what found each into README.md beside this file
    tests/accelerator/mutants.py --check                whether each still fits the code; builds nothing

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
SECONDS = 120  # of a test program, which takes a few
PAGE = Path(__file__).resolve().parent / "README.md"
ON_DEVICES = {"LOCKSTEP_TEST_DEVICE": "emulated"}
PROGRAMS = {"accelerator_test": {"GTEST_FILTER": "-*DeviceCheck*"},  # much of its time
            "fsdp_test": {**ON_DEVICES, "GTEST_FILTER": "FullySharded.*-*Refuses*:*TrainsAsTheModelAlone"},
            "parallel_test": {**ON_DEVICES, "GTEST_FILTER": "-ProcessBackends*:Backends/*:*parse*:*TheOtherRanksLearn*:*ARankThatTrainsLate*"},
            "sharded_optim_test": ON_DEVICES, "sync_batch_norm_test": ON_DEVICES,
            "transparency_test": {**ON_DEVICES, "GTEST_FILTER": "-*ResNet*"}}


@dataclass
class Mutant:
    name: str
    file: str
    old: str
    new: str
    programs: tuple = ("accelerator_test",)


COPIER = "lockstep/device/accelerator.cpp"
STAGING = "lockstep/comm/device/staged_backend.cpp"
NCCL = "lockstep/comm/device/nccl_api.h"
COPY = "lockstep/snapshot/host_copy.cpp"
LINKS = "lockstep/parallel/pipeline/links.cpp"
CHANNEL = "lockstep/comm/device/nccl_backend.cpp"
SAVER = "lockstep/snapshot/snapshot_saver.cpp"
CHECKPOINTER = "lockstep/train/checkpointer.cpp"
SYNC_BATCH_NORM = "lockstep/parallel/sync_batch_norm/sync_batch_norm.cpp"
FLAT = "lockstep/parallel/fsdp/flat_parameter.cpp"
UNITS = "lockstep/parallel/fsdp/sharded_units.cpp"
FSDP = ("fsdp_test",)
REDUCER = "lockstep/parallel/ddp/reducer.cpp"
PARALLEL = ("parallel_test",)
DDP = ("accelerator_test", "transparency_test")
PIPELINES = ("accelerator_test", "transparency_test")

MUTANTS = [
    Mutant("the batch is computed with before its copy has come", COPIER, "  wait_for(current, *stream_);\n", ""),
    Mutant("the batch's memory is given away while it is computed with", COPIER, "  copy.record_stream(current);\n", ""),
    Mutant("no stream waits for an event", COPIER, "  event.block(waiting);\n", "  static_cast<void>(waiting);\n"),
    Mutant("the event is recorded on the stream that waits", COPIER, "  event.record(awaited);\n", "  event.record(waiting);\n"),
    Mutant("a gradient leaves before it is computed", STAGING, "  wait_for(*side_, current_stream(device));\n", ""),
    Mutant("the host reduces before the gradient has come", STAGING, "  arrived_ = recorded(*side_);\n", ""),
    Mutant("arrival is asked of another stream", STAGING, "arrived_ = recorded(*side_)",
           "arrived_ = recorded(current_stream(side_->device()))"),
    Mutant("the average is used before it is back", STAGING, "    if (returned_) returned_->block(current_stream(returned_->device()));\n",
           ""),
    Mutant("a message is begun out of turn", STAGING, "      if (!calls.front()->has_arrived()) break;\n", ""),
    Mutant("NCCL takes the gradient before it is computed", CHANNEL, "  wait_for(stream_, current_stream(device_));\n", ""),
    Mutant("the end of a call is recorded on the computing stream", CHANNEL, "  call.ended.record(stream_);\n",
           "  call.ended.record(current_stream(device_));\n"),
    Mutant("nobody waits for NCCL", CHANNEL, "  call.ended.block(current_stream(device_));\n", "  static_cast<void>(call);\n"),
    Mutant("memory that NCCL reads is given away", CHANNEL, "    if (tensor.defined()) tensor.record_stream(stream_);\n",
           "    static_cast<void>(tensor);\n"),
    Mutant("a snapshot copies before the step is computed", COPY,
           "  for (const torch::Device& device : devices_) wait_for(side_of(device), current_stream(device));\n", ""),
    Mutant("the next step changes what is copied", COPY,
           "  for (const auto& [device, side] : streams_) wait_for(current_stream(device), side);\n", ""),
    Mutant("the snapshot is written before its copy has come", COPY,
           "  for (const c10::Event& arrival : arrivals_) arrival.synchronize();\n", ""),
    Mutant("the copy's end is recorded on the computing stream", COPY, ".record(side_of(device));\n",
           ".record(current_stream(device));\n"),
    Mutant("a pinned batch is filled again early", "lockstep/data/batch.cpp", "  return !form.pinned && is_held_by_nobody_else",
           "  return is_held_by_nobody_else"),
    Mutant("workers compute on other streams than the caller", "lockstep/parallel/place/place.cpp",
           "    c10::impl::getDeviceGuardImpl(stream.device_type())->exchangeStream(stream);\n", "    static_cast<void>(stream);\n"),
    Mutant("all devices draw from one generator", "lockstep/parallel/operators/operator_rules.cpp", ".defaultGenerator(device).clone();",
           ".defaultGenerator(device);"),
    Mutant("the end of a call is recorded before NCCL has it on the stream", CHANNEL,
           "  if (state == Result::kSuccess && last_ != nullptr", "  if (last_ != nullptr"),
    Mutant("a call is made before the last one is on the stream", CHANNEL, "  wait_until_launched(last_, what);\n", ""),
    Mutant("the tensors of a call are let go before it is on the stream", CHANNEL, "c10::Event(device_.type()), tensors,",
           "c10::Event(device_.type()), {},"),
    Mutant("NCCL keeps the caller until the other rank comes", NCCL, "  int blocking = 0;", "  int blocking = 1;"),
    Mutant("a group that is done is aborted while others still read", CHANNEL, "  if (is_finalized(", "  if (false && is_finalized("),
    Mutant("memory that NCCL writes is given away", CHANNEL, "  for (const torch::Tensor& tensor : tensors)\n",
           "  for (const torch::Tensor& tensor : std::vector<torch::Tensor>{tensors.back()})\n"),
    Mutant("the averages are used before NCCL has them", REDUCER, "      bucket.step.work.wait();\n", "",
           DDP),
    Mutant("a stage computes with what has not come", LINKS, "  message.wait();\n", "", PIPELINES),
    Mutant("batch norm merges statistics that have not come", SYNC_BATCH_NORM, "  group.all_gather(rows.view({-1}), own).wait();\n",
           "  static_cast<void>(group.all_gather(rows.view({-1}), own));\n", ("sync_batch_norm_test",)),
    Mutant("batch norm's gradient uses sums that have not come", SYNC_BATCH_NORM, "  group.all_reduce(sums).wait();\n",
           "  static_cast<void>(group.all_reduce(sums));\n", ("sync_batch_norm_test",)),
    Mutant("gradients are clipped by a part of their norm", "lockstep/parallel/optim/clip_grad_norm.cpp",
           "  group.all_reduce(sum).wait();\n  return sum;", "  static_cast<void>(group.all_reduce(sum));\n  return sum;"),
    Mutant("messages up and down share a stream", CHANNEL, "[odd + down]", "[0 * (odd + down)]", PIPELINES),
    Mutant("an aborted call passes for a finished one", CHANNEL, "  throw_if_given_up(what);\n  return call.is_launched;",
           "  static_cast<void>(what);\n  return call.is_launched || !reason_.empty();"),
    Mutant("the watchdog never finds a call late", CHANNEL, "under_way_.front()->began <= timeout) return;", "under_way_.front()->began <= timeout || timeout.count() >= 0) return;"),
    Mutant("dropout draws outside of its stream", "lockstep/parallel/operators/operator_rules.cpp",
           "  library.impl(\"dropout\", TORCH_FN(drop_from_stream));\n", ""),
    Mutant("a stage's output leaves before it is computed", COPIER, "  wait_for(*leaving_, current_stream(tensor.device()));\n", ""),
    Mutant("a stage computes with a copy that has not come", COPIER, "    arrived->block(current);\n", ""),
    Mutant("the copy's arrival is recorded on the stream that computes with it", COPIER, "record(*arriving_)", "record(current_stream(to_))"),
    Mutant("a stage's output is given away before it has left", COPIER, "  tensor.record_stream(*leaving_);\n", ""),
    Mutant("a stage's input is given away while it is computed with", COPIER, "tensor.record_stream(current)", "static_cast<void>(current)"),
    Mutant("a copy waits for what the next stage computes", COPIER, "{*leaving_, *arriving_}", "{*leaving_}"),
    Mutant("a stage computes on when its output has left", COPIER, "*leaving_, *arriving_}", "*arriving_}"),
    Mutant("stages copy where they compute", COPIER, "  return tensor.defined() &&", "  return false && tensor.defined() &&"),
    Mutant("stages wait for each other where the loss is scaled", "lockstep/nn/grad_scaler.cpp", "device == device_ || device.is_cpu()",
           "device == device_ || !device_.is_cpu()"),
    Mutant("a message waits for what its receiver computes", LINKS,
           "    const c10::OptionalStreamGuard beside(arriving_);\n    return", "    return"),
    Mutant("a message comes into memory of the computing stream", LINKS,
           "  const c10::OptionalStreamGuard beside(arriving_);\n  return", "  return"),
    Mutant("what a message has brought is given away while it is computed with", LINKS,
           "  if (arriving_) tensor.record_stream(current_stream(device_));\n", ""),
    Mutant("what a stage receives waits for what it sends", CHANNEL, "from % 2 == 0 ? 0 : 1", "from > to ? 1 : 0"),
    Mutant("what comes by way of the host waits for what is sent", STAGING, "call.kind == Operation::kRecv", "call.kind == Operation::kNone"),
    Mutant("the step of the training loop does not wait for a snapshot", "lockstep/train/epoch_loop.cpp", "  observer_.before_step();\n", ""),
    Mutant("forward changes statistics that are being copied", CHECKPOINTER, "stays ? tensor : tensor.clone()", "stays ? tensor : tensor"),
    Mutant("averages are exchanged while weights are being copied", CHECKPOINTER, "part.stays = stopped_by_.empty();", "part.stays = true;"),
    Mutant("a snapshot's buffer is filled again while copies still come", COPY,
           "  wait_for_copies();  // none is under way, unless nobody came to look at the one before\n", ""),
    Mutant("a snapshot's buffer is given away while copies still come", COPY, ".set_(buffer_.storage(),",
           ".set_(at::from_blob(buffer_.mutable_data_ptr(), buffer_.sizes(), at::kByte).storage(),"),
    Mutant("a snapshot is begun while the one before is being written", SAVER, "  finish();\n  const Stopwatch watch;\n",
           "  const Stopwatch watch;\n"),
    Mutant("the host looks whether what it saves is finite", CHECKPOINTER, "  return must > 0;\n", "  return must >= 0;\n"),
    Mutant("a snapshot of what has diverged is kept", SAVER, "    if (overflow.bytes.front() != 0) throw DivergedError(divergence_);\n",
           "    static_cast<void>(overflow);\n"),
    Mutant("a unit computes before its parameters have come", FLAT, "  std::exchange(gather_, {}).wait();\n  if", "  gather_ = {};\n  if", FSDP),
    Mutant("a part takes averages that have not come", FLAT, "  std::exchange(reduction_, {}).wait();\n  if", "  reduction_ = {};\n  if", FSDP),
    Mutant("gradients are reduced in memory that is given away", FLAT, "  reduced_ = std::exchange(gradient_, {});\n",
           "  reduced_ = std::exchange(gradient_, {});\n  pools_.gradients.give(reduced_);\n", FSDP),
    Mutant("the end of a pass follows no stream", UNITS, "    const InTurn turn(stream_);\n    end_pass();\n", "    end_pass();\n", FSDP),
    Mutant("parts are used before rank 0's values have come", FLAT, "torch::Tensor(), 0).wait();", "torch::Tensor(), 0);", FSDP),
    Mutant("a rank takes the averages of its neighbour's shard", FLAT, "whole.narrow(0, group_.rank() * shard_elements_,",
           "whole.narrow(0, (group_.rank() + 1) % group_.size() * shard_elements_,", FSDP),
    Mutant("every rank trains the first shard", FLAT, "const Stretch own{group_.rank() * shard_elements_, shard_elements_};",
           "const Stretch own{0, shard_elements_};", FSDP),
    Mutant("a part reaches into the padding behind its parameter", FLAT, "{member.offset, member.parameter.numel()}",
           "{member.offset, member.parameter.numel() + 1}", FSDP),
    Mutant("shards add up gradients without dividing", FLAT, "ReduceOp::kSum : ReduceOp::kMean", "ReduceOp::kSum : ReduceOp::kSum", FSDP),
    Mutant("a unit is gathered again while it is whole", FLAT, "  if (is_whole() && lent_.scalar_type() == type) return;\n", "", FSDP),
    Mutant("a second pass replaces gradients that wait", FLAT, "    own.add_(gradient);\n", "    own.copy_(gradient);\n", FSDP),
    Mutant("averages replace those of the pass before", FLAT, "    gradient.add_(added);\n", "    gradient.copy_(added);\n", FSDP),
    Mutant("averages are written over a gradient that a caller keeps", FLAT, "  if (member.place.is_seen()) member.place.leave_to_those_who_see();\n", "",
           FSDP),
    Mutant("gradients of the step before leak into the next", FLAT, "  for (Member& member : members_) member.has_gradient = false;\n", "", FSDP),
    Mutant("what is loaded does not reach the parts", FLAT, "  shard_.copy_(own_shard_of(lent_));\n", "", FSDP),
    Mutant("memory of another type is lent", FLAT, "buffer->scalar_type() != options.dtype() || ", "", FSDP),
    Mutant("a pass does not wait for the stream of the one before", UNITS, "if (stream_ && *stream_ != now) wait_for(now, *stream_);", "", FSDP),
    Mutant("a gradient is taken beside the stream that makes it", UNITS, "    const InTurn turn(stream_);\n    FlatParameter& own", "    FlatParameter& own",
           FSDP),
    Mutant("backward gathers the unit before", UNITS, "  hold(forward.read, forward.read_before);\n",
           "  hold(forward.unit > 0 ? forward.read_before : forward.read, {});\n", FSDP),
    Mutant("backward gathers ahead the unit that it comes from", UNITS, "hold(forward.read, forward.read_before);",
           "hold(forward.read, forward.unit + 1 < flats_of_.size() ? flats_of_[forward.unit + 1] : forward.read);", FSDP),
    Mutant("a unit that was gathered ahead is released where it is needed", UNITS, "!has(now, flat) && !has(next, flat)", "!has(next, flat)", FSDP),
    Mutant("a unit stays whole when backward has done with it", UNITS, "  release_all();\n  current_.reset();\n", "  current_.reset();\n", FSDP),
    Mutant("forward computes with what was gathered before the step", UNITS, "  release_all();  // an optimizer may have changed the parts since\n", "", FSDP),
    Mutant("a weight that is handed on is released", UNITS, "  lend_to_later(unit, outputs);\n", "", FSDP),
    Mutant("units are averaged at the end alone", UNITS, "  leave_backward();\n  hold(forward", "  hold(forward", FSDP),
    Mutant("all units are averaged at once", UNITS, "  if (reducing_) flats_[*reducing_]->finish_reduce();\n", "", FSDP),
    Mutant("the optimizer steps before the last averages", UNITS, "  for (const Flat& flat : flats_) flat->finish_reduce();\n", "", FSDP),
    Mutant("one rank averages units in another order", UNITS, "    if (flats_[flat]->has_gradients()) reduce(flat);\n",
           "    if (const auto own = group_.rank() == 1 ? flats_.size() - 1 - flat : flat; flats_[own]->has_gradients()) reduce(own);\n", FSDP),
    Mutant("whole() returns before all has come", UNITS, "  for (const Flat& flat : flats_) flat->finish_gather();\n", "", FSDP),
    Mutant("a visitor sees what has not come", UNITS, "    flat.finish_gather();\n", "", FSDP),
    Mutant("a bucket leaves before its last gradient", REDUCER, "buckets_[next_launch_].missing == 0;", "buckets_[next_launch_].missing <= 1;", PARALLEL),
    Mutant("gradients are added up, not averaged", REDUCER, "all ? ReduceOp::kMean : ReduceOp::kSum", "all ? ReduceOp::kSum : ReduceOp::kSum", PARALLEL),
    Mutant("ranks without data count in the mean", REDUCER, "bucket.memory.div_(divisor_);", "bucket.memory.div_(group_.size());", PARALLEL),
    Mutant("a bucket is filled over a gradient that a caller keeps", REDUCER, "return;\n  slot.place.leave_to_those_who_see();\n", "return;\n", PARALLEL),
    Mutant("each rank cuts buckets in its own order", REDUCER, "  group_.broadcast(order, 0).wait();\n", "", PARALLEL),
    Mutant("an unused parameter has the gradient of the step before", REDUCER, "    slot.place.memory().zero_();\n", "", PARALLEL),
    Mutant("a parameter is unused if one rank leaves it out", REDUCER, "ReduceOp::kMax", "ReduceOp::kMin", PARALLEL),
]


def run(command, folder, **options):
    return subprocess.run(command, cwd=folder, text=True, capture_output=True, check=False, **options)


def build(folder, programs):
    done = run(["./dev", "build", *programs], folder, env={"LOCKSTEP_WERROR": "OFF", **os.environ})
    if done.returncode != 0:
        raise SystemExit(f"does not build:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")


def failure_of(folder, program):
    """Returns what a program's failure names; None if it passes."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **PROGRAMS[program]}
    try:
        done = run([str(folder / "build/release/bin" / program), "--gtest_brief=1", "--gtest_fail_fast"], folder, env=environment, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return "does not end"
    if done.returncode == 0:
        return None
    failed = re.findall(r"^\[  FAILED  \] ([\w./]+)", done.stdout, re.MULTILINE)
    return failed[0] if failed else f"ends with {done.returncode}"


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


def misfits():
    """Returns the mutants whose text their file does not have exactly once, or that are there twice."""
    places = [(mutant.file, mutant.old) for mutant in MUTANTS]
    return [mutant.name for mutant in MUTANTS
            if (ROOT / mutant.file).read_text(encoding="utf-8").count(mutant.old) != 1
            or places.count((mutant.file, mutant.old)) > 1]


def write_page(finders):
    """Puts what was found, by the number of the mutant, into the page's list; of other mutants it keeps what found them."""
    heading, page = "## What finds which mistake\n\n", PAGE.read_text(encoding="utf-8")
    start = page.index(heading) + len(heading)
    items = [line.removeprefix("* ").rpartition(": ") for line in page[start:].splitlines() if line.startswith("* ")]
    found = {name: finder for finder, _, names in items for name in names.split("; ")}
    for number, finder in finders.items():
        found[MUTANTS[number - 1].name] = (finder or "**nothing**").removeprefix("accelerator_test: ")
    made = [mutant.name for mutant in MUTANTS if mutant.name in found]
    lists = [f"* {finder}: " + "; ".join(name for name in made if found[name] == finder) + "\n" for finder in dict.fromkeys(map(found.get, made))]
    PAGE.write_text(page[:start] + f"{len(made)} of {len(MUTANTS)} mistakes were made, and found by:\n\n" + "".join(lists), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--only", help="numbers, separated by commas")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if arguments.check:
        print("\n".join(misfits()))
        return 1 if misfits() else 0
    if arguments.folder is None:
        parser.error("name a folder")
    clone = arguments.folder / "lockstep"
    if not clone.exists():
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    numbers = [int(each) for each in arguments.only.split(",")] if arguments.only else range(1, len(MUTANTS) + 1)
    check_unchanged(clone, {program for number in numbers for program in MUTANTS[number - 1].programs})
    finders = {}
    for number in numbers:
        mutant = MUTANTS[number - 1]
        finder = found_by(clone, mutant)
        finders[number] = finder
        print(f"{number:3}  {'found ' if finder else 'MISSED'}  {mutant.name}: {finder or 'every test passes'}", flush=True)
        if arguments.write:
            write_page(finders)
    return 1 if None in finders.values() else 0


if __name__ == "__main__":
    sys.exit(main())
