#!/usr/bin/env python3
"""Runs the tests that PyTorch's wheel carries against the backend "lockstep", or "gloo" for comparison.

    PYTHONPATH=build/release/python tests/python/pytorch_suite.py [--suite autograd] [--backend gloo] [--only REGEX] [--json FILE]

The suite `backend` has the tests of collectives and of DDP that backends must pass, on the CPU, in a world of --ranks; where they ask whether
the backend is Gloo, ours says yes. The suite `autograd` has those of DDP below distributed autograd. Both need the package expecttest. The
wheel's other tests are of RPC, which uses a group for nothing but barriers; the files of FSDP, DTensor and checkpoints are without tests.

All tests run in the same processes, each in a world of its own, so that torch is imported once. Tests that PyTorch skips here (GPUs, other
backends, more ranks) are counted as skipped; one that takes longer than LONGEST, or ends a process, has failed. The status is 1 if a test
fails that is not in EXPECTED, or passes though it is, or if few pass.
"""

import argparse
import faulthandler
import functools
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

BACKEND_TESTS = "torch.testing._internal.distributed.distributed_test"
LIMIT = timedelta(seconds=40)
LONGEST = 300  # seconds of a test
# What cannot pass, with the reason.
WORDS = "the words are those of Gloo's monitored barrier; ours names the missing ranks in others"
EQUAL_PARTS = "Gloo takes equal parts alone"
EVERYWHERE = {
    **dict.fromkeys(
        ["test_all_to_all_cuda", "test_all_to_all_cuda_complex", "test_all_to_all_full_group_cuda", "test_batch_isend_irecv_mixed_backend_err",
         "test_batch_isend_irecv_op_err"], "it needs a GPU, though it does not say so"),
    "test_new_subgroups_with_group_param": "it needs four ranks",
}
EXPECTED = {
    "gloo": EVERYWHERE | dict.fromkeys(["test_all_to_all", "test_all_to_all_complex", "test_all_to_all_full_group"], EQUAL_PARTS),
    "lockstep": EVERYWHERE | {
        "test_ddp_logging_data_cpu": "the logs of PyTorch call each backend that is not its own `custom`",
        "test_monitored_barrier_gloo": WORDS,
        "test_monitored_barrier_gloo_rank_0_timeout": WORDS,
        "test_monitored_barrier_gloo_subgroup": WORDS,
    },
}


class LikeGloo(str):
    """The name of our backend, which passes for Gloo's in comparisons."""

    def __eq__(self, other):
        return other in ("gloo", "lockstep")

    def __ne__(self, other):
        return not self == other

    def __hash__(self):
        return hash("gloo")


class BackendSuite:
    """The tests of backends: a world is there before each."""

    least = 60  # of the tests can pass

    def __init__(self, arguments):
        self.ranks = arguments.ranks
        self.module = self.load(arguments.backend)

        class Case(self.module.TestDistBackend, self.module.DistributedTest._DistTestBase):
            pass

        self.case = Case

    @staticmethod
    def load(backend):
        """Returns PyTorch's module of tests, made for this backend."""
        os.environ["BACKEND"] = "gloo"  # what it knows
        spec = importlib.util.find_spec(BACKEND_TESTS)
        text = Path(spec.origin).read_text()
        name = 'os.environ["BACKEND"]'
        assert text.count(f"BACKEND = {name}\n") == 1, "PyTorch's suite reads its backend in another way"
        module = types.ModuleType(BACKEND_TESTS)
        module.__file__ = spec.origin
        module.chosen = LikeGloo("lockstep") if backend == "lockstep" else backend
        sys.modules[BACKEND_TESTS] = module
        torch.manual_seed(0)  # it draws numbers that all ranks must know
        exec(compile(text.replace(name, "chosen"), spec.origin, "exec"), module.__dict__)
        return module

    def names(self):
        return [name for name in dir(self.case) if name.startswith("test_")]

    def run(self, name, folder, rank):
        os.environ["TEMP_DIR"] = str(folder)
        os.environ["INIT_METHOD"] = f"file://{folder}/init_dir/shared_init_file"
        self.module.INIT_METHOD = os.environ["INIT_METHOD"]
        self.module.Barrier.barrier_id = 0
        test = self.case(name)
        test.rank, test.file_name = rank, f"{folder}/world"
        dist.init_process_group(str(self.module.chosen), init_method=test.init_method, world_size=self.ranks, rank=rank, timeout=LIMIT)
        test._barrier(timeout=60)
        getattr(test, name)()
        test._barrier(timeout=60)


class AutogradSuite:
    """The tests of DDP below distributed autograd. They make a group by themselves, of Gloo by name; their worlds differ in size."""

    least = 8
    ranks = 6

    def __init__(self, arguments):
        from torch.testing._internal.common_distributed import MultiProcessTestCase
        from torch.testing._internal.distributed.ddp_under_dist_autograd_test import DdpComparisonTest, DdpUnderDistAutogradTest
        from torch.testing._internal.distributed.rpc.tensorpipe_rpc_agent_test_fixture import TensorPipeRpcAgentTestFixture

        self.patch(arguments.backend)
        self.cases = {each.__name__: type(each.__name__, (each, TensorPipeRpcAgentTestFixture, MultiProcessTestCase), {})
                      for each in (DdpComparisonTest, DdpUnderDistAutogradTest)}

    @staticmethod
    def patch(backend):
        """Has whoever asks for Gloo get this backend."""
        original = dist.init_process_group

        @functools.wraps(original)
        def init_process_group(*positional, **named):
            assert not positional and named["backend"] == "gloo", (positional, named)
            return original(**named | {"backend": backend})

        dist.init_process_group = init_process_group

    def names(self):
        return [f"{name}.{test}" for name, case in self.cases.items() for test in dir(case) if test.startswith("test_")]

    def run(self, name, folder, rank):
        from torch.distributed import rpc

        case, test_name = name.split(".")
        test = self.cases[case](test_name)
        if rank >= test.world_size:
            raise unittest.SkipTest("the world is smaller")
        test.rank, test.file_name = rank, f"{folder}/world"
        try:
            getattr(test, test_name)()
        finally:
            if rpc.api._is_current_rpc_agent_set():
                rpc.shutdown(graceful=False)


SUITES = {"backend": BackendSuite, "autograd": AutogradSuite}


def run_one(suite, name, folder, rank):
    """Runs a test in a world of its own; returns its outcome and what to say of it."""
    try:
        suite.run(name, folder, rank)
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
    suite = SUITES[arguments.suite](arguments)
    with open(folder / f"results-{rank}.jsonl", "a") as results:
        for name in names:
            started = time.monotonic()
            faulthandler.dump_traceback_later(LONGEST, exit=True)
            outcome, text = run_one(suite, name, folder / name, rank)
            line = {"test": name, "outcome": outcome, "text": text, "seconds": round(time.monotonic() - started, 2)}
            print(json.dumps(line), file=results, flush=True)
            meet(folder / name, rank, suite.ranks)
            faulthandler.cancel_dump_traceback_later()
            if outcome == "failed":
                print(f"{name}, rank {rank}: {text.strip().splitlines()[-1]}", flush=True)
            if rank == 0:
                print(f"{outcome:8}{line['seconds']:7.2f}  {name}", flush=True)


def gathered(folder, ranks):
    """Returns the worst outcome of each test, the texts of the ranks, and how many of them have ended it."""
    order = ["skipped", "passed", "failed"]
    found = {}
    for rank in range(ranks):
        path = folder / f"results-{rank}.jsonl"
        for line in path.read_text().splitlines() if path.exists() else []:
            result = json.loads(line)
            outcome, texts = found.setdefault(result["test"], ("skipped", []))
            texts.append(f"rank {rank}: {result['text']}")
            found[result["test"]] = (max(outcome, result["outcome"], key=order.index), texts)
    return found


def run_all(arguments, suite, names, folder):
    """Runs the tests, and those behind one that ends its processes in new ones; returns what gathered() does."""
    lost = {}
    while names:
        try:
            mp.spawn(run_rank, (arguments, names, folder), nprocs=suite.ranks)
            names = []
        except Exception as failure:
            found = gathered(folder, suite.ranks)
            whole = [name for name in names if len(found.get(name, ("", []))[1]) == suite.ranks]
            if len(whole) == len(names):
                raise
            lost[names[len(whole)]] = ("failed", [f"it ended its processes, or took {LONGEST} s: {failure}"])
            print(f"{names[len(whole)]}: {failure}", flush=True)
            names = names[len(whole) + 1:]
    return gathered(folder, suite.ranks) | lost


def report(arguments, suite, found):
    """Prints what is not as expected, and the sums; returns the exit status."""
    expected = EXPECTED[arguments.backend]
    wrong = [name for name, (outcome, _) in found.items() if outcome == "failed" and name not in expected]
    cured = [name for name, (outcome, _) in found.items() if outcome == "passed" and name in expected]
    for name in wrong:
        print(f"\n{name}\n" + "\n".join(found[name][1]))
    outcomes = [outcome for outcome, _ in found.values()]
    print(f"\n{arguments.backend}, {arguments.suite}: {outcomes.count('passed')} passed, {outcomes.count('skipped')} skipped, "
          f"{outcomes.count('failed')} failed ({len(wrong)} of them not expected: {', '.join(wrong)})")
    least = 1 if arguments.only else suite.least
    if outcomes.count("passed") < least:
        print(f"too few: at least {least} can pass")
    if cured:
        print("passed though it is among the exceptions:", ", ".join(cured))
    return 1 if wrong or cured or outcomes.count("passed") < least else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", default="backend", choices=SUITES)
    parser.add_argument("--backend", default="lockstep", choices=["lockstep", "gloo"])
    parser.add_argument("--ranks", type=int, default=3, help="of the suite `backend`")
    parser.add_argument("--only", default="", help="a regular expression; only tests whose names it finds")
    parser.add_argument("--json", help="a file for the outcome of each test")
    arguments = parser.parse_args()
    os.environ.update(WORLD_SIZE=str(arguments.ranks), TEMP_DIR=tempfile.gettempdir())
    suite = SUITES[arguments.suite](arguments)
    names = [name for name in suite.names() if re.search(arguments.only, name)]
    assert names, f"no test has {arguments.only} in its name"
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            for part in ("barrier", "test_dir", "init_dir"):
                (Path(folder) / name / part).mkdir(parents=True)
        found = run_all(arguments, suite, names, Path(folder))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({name: outcome for name, (outcome, _) in found.items()}, indent=1))
    return report(arguments, suite, found)


if __name__ == "__main__":
    sys.exit(main())
