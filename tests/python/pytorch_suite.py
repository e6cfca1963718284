#!/usr/bin/env python3
"""Runs the tests of backends that PyTorch's wheel carries against the backend "lockstep", or "gloo" for comparison.

    PYTHONPATH=build/release/python tests/python/pytorch_suite.py [--backend gloo] [--ranks 3] [--only REGEX]

The tests are those for Gloo on the CPU: where they ask whether the backend is Gloo, ours says yes. All run in the same processes, each in
a world of its own, so that torch is imported once. Tests that PyTorch skips here (GPUs, other backends, more ranks) are counted as skipped.
The status is 1 if a test fails that is not in EXPECTED, or passes though it is, or if few pass.
"""

import argparse
import faulthandler
import importlib.util
import json
import os
import re
import sys
import tempfile
import time
import traceback
import types
import unittest
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SUITE = "torch.testing._internal.distributed.distributed_test"
LIMIT = timedelta(seconds=40)
# What cannot pass, with the reason.
WORDS = "the words are those of Gloo's monitored barrier; ours names the missing ranks in others"
NO_GPU = "it needs a GPU, though it does not say so; Gloo fails, too"
EXPECTED = {
    "test_batch_isend_irecv_mixed_backend_err": NO_GPU,
    "test_batch_isend_irecv_op_err": NO_GPU,
    "test_ddp_logging_data_cpu": "the logs of PyTorch call each backend that is not its own `custom`",
    "test_monitored_barrier_gloo": WORDS,
    "test_monitored_barrier_gloo_rank_0_timeout": WORDS,
    "test_monitored_barrier_gloo_subgroup": WORDS,
    "test_sparse_all_reduce_sum": "sparse tensors are refused",
}


class LikeGloo(str):
    """The name of our backend, which passes for Gloo's in comparisons."""

    def __eq__(self, other):
        return other in ("gloo", "lockstep")

    def __ne__(self, other):
        return not self == other

    def __hash__(self):
        return hash("gloo")


def load_suite(backend):
    """Returns PyTorch's module of tests, made for this backend."""
    os.environ["BACKEND"] = "gloo"  # what it knows
    spec = importlib.util.find_spec(SUITE)
    text = Path(spec.origin).read_text()
    name = 'os.environ["BACKEND"]'
    assert text.count(f"BACKEND = {name}\n") == 1, "PyTorch's suite reads its backend in another way"
    module = types.ModuleType(SUITE)
    module.__file__ = spec.origin
    module.chosen = LikeGloo("lockstep") if backend == "lockstep" else backend
    sys.modules[SUITE] = module
    torch.manual_seed(0)  # it draws numbers that all ranks must know
    exec(compile(text.replace(name, "chosen"), spec.origin, "exec"), module.__dict__)
    return module


def case_of(module):
    class Case(module.TestDistBackend, module.DistributedTest._DistTestBase):
        pass

    return Case


def run_one(module, case, name, folder, arguments, rank):
    """Runs a test in a world of its own; returns its outcome and what to say of it."""
    os.environ["TEMP_DIR"] = str(folder)
    os.environ["INIT_METHOD"] = f"file://{folder}/init_dir/shared_init_file"
    module.INIT_METHOD = os.environ["INIT_METHOD"]
    module.Barrier.barrier_id = 0
    test = case(name)
    test.rank, test.file_name = rank, f"{folder}/world"
    try:
        dist.init_process_group(str(module.chosen), init_method=test.init_method, world_size=arguments.ranks, rank=rank, timeout=LIMIT)
        test._barrier(timeout=60)
        getattr(test, name)()
        test._barrier(timeout=60)
        return "passed", ""
    except (unittest.SkipTest, SystemExit) as reason:
        return "skipped", str(reason)
    except BaseException:
        return "failed", traceback.format_exc()
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def meet(folder, rank, ranks):
    """Waits for the other ranks, so that none which waited for a failure is late in the next test."""
    (folder / f"done-{rank}").touch()
    while not all((folder / f"done-{other}").exists() for other in range(ranks)):
        time.sleep(0.01)


def run_rank(rank, arguments, names, folder):
    os.environ.update(WORLD_SIZE=str(arguments.ranks), MASTER_ADDR="127.0.0.1", OMP_NUM_THREADS="1", TEMP_DIR=str(folder), PYTORCH_PRINT_REPRO_ON_FAILURE="0")
    faulthandler.enable()
    if arguments.backend == "lockstep":
        import lockstep.distributed  # noqa: F401
    module = load_suite(arguments.backend)
    case = case_of(module)
    with open(folder / f"results-{rank}.jsonl", "w") as results:
        for name in names:
            started = time.monotonic()
            faulthandler.dump_traceback_later(300, exit=True)
            outcome, text = run_one(module, case, name, folder / name, arguments, rank)
            faulthandler.cancel_dump_traceback_later()
            line = {"test": name, "outcome": outcome, "text": text, "seconds": round(time.monotonic() - started, 2)}
            print(json.dumps(line), file=results, flush=True)
            meet(folder / name, rank, arguments.ranks)
            if outcome == "failed":
                print(f"{name}, rank {rank}: {text.strip().splitlines()[-1]}", flush=True)
            if rank == 0:
                print(f"{outcome:8}{line['seconds']:7.2f}  {name}", flush=True)


def gathered(folder, ranks):
    """Returns the worst outcome of each test, and the texts of the ranks."""
    order = ["skipped", "passed", "failed"]
    found = {}
    for rank in range(ranks):
        for line in (folder / f"results-{rank}.jsonl").read_text().splitlines():
            result = json.loads(line)
            outcome, texts = found.setdefault(result["test"], ("skipped", []))
            texts.append(f"rank {rank}: {result['text']}")
            found[result["test"]] = (max(outcome, result["outcome"], key=order.index), texts)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="lockstep", choices=["lockstep", "gloo"])
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--only", default="", help="a regular expression; only tests whose names it finds")
    arguments = parser.parse_args()
    os.environ.update(WORLD_SIZE=str(arguments.ranks), TEMP_DIR=tempfile.gettempdir())
    names = [name for name in dir(case_of(load_suite("gloo"))) if name.startswith("test_") and re.search(arguments.only, name)]
    assert names, f"no test has {arguments.only} in its name"
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            for part in ("barrier", "test_dir", "init_dir"):
                (Path(folder) / name / part).mkdir(parents=True)
        mp.spawn(run_rank, (arguments, names, Path(folder)), nprocs=arguments.ranks)
        found = gathered(Path(folder), arguments.ranks)
    expected = EXPECTED if arguments.backend == "lockstep" else {}
    wrong = [name for name, (outcome, _) in found.items() if outcome == "failed" and name not in expected]
    cured = [name for name, (outcome, _) in found.items() if outcome == "passed" and name in expected]
    for name in wrong:
        print(f"\n{name}\n" + "\n".join(found[name][1]))
    outcomes = [outcome for outcome, _ in found.values()]
    print(f"\n{arguments.backend}: {outcomes.count('passed')} passed, {outcomes.count('skipped')} skipped, {outcomes.count('failed')} failed"
          f" ({len(wrong)} of them not expected: {', '.join(wrong)})")
    least = 1 if arguments.only else 60
    if outcomes.count("passed") < least:
        print(f"too few: at least {least} can pass with three ranks")
    if cured:
        print("passed though it is among the exceptions:", ", ".join(cured))
    return 1 if wrong or cured or outcomes.count("passed") < least else 0


if __name__ == "__main__":
    sys.exit(main())
