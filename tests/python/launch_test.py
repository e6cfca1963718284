#!/usr/bin/env python3
"""Tests `lockstep run` with programs of Python that use the backend "lockstep".

    PYTHONPATH=build/release/python LOCKSTEP_BINARY_DIR=build/release/bin tests/python/launch_test.py
"""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

LOCKSTEP = Path(os.environ["LOCKSTEP_BINARY_DIR"]).resolve() / "lockstep"
PROGRAM = """
import os, signal, sys, time
import torch, torch.distributed as dist
import lockstep
import lockstep.distributed
from torch.nn.parallel import DistributedDataParallel

signal.signal(signal.SIGTERM, signal.SIG_IGN)  # to see what is noticed
act, rank, is_first = sys.argv[1], int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
dist.init_process_group("lockstep")
if act == "child" and rank == 1:  # a program that a rank starts has its variables
    import subprocess
    subprocess.run([sys.executable, "-c", "import lockstep; lockstep.report_step(3)"], check=True)
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Linear(4, 4))


def disturb():
    if act == "kill" and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    while act in ("hang", "child") and rank == 1:
        pass
    for _ in range(10 if act == "evaluate" else 0):  # without a step, for longer than the timeout
        dist.barrier()
        time.sleep(0.5)
    if act == "alone" and rank == 0:  # the other waits meanwhile
        for _ in range(10):
            time.sleep(0.5)
            lockstep.sign_of_life()


for step in range(1, 9):
    model(torch.ones(2, 4)).sum().backward()
    lockstep.report_step(step)
    if step == 5 and is_first:
        disturb()
dist.barrier()
print(f"rank {rank} is done, of {os.environ['WORLD_SIZE']}", flush=True)  # one write: Python does not buffer
if act in ("fork", "fork after thread"):
    if act != "fork":
        dist.all_reduce(torch.ones(2), async_op=True).wait()
    try:
        child = os.fork()
        if child == 0:
            sys.exit()  # destroys its copy of the group
        os.waitpid(child, 0)
        dist.barrier()
    finally:
        dist.destroy_process_group()
if act == "leave":
    time.sleep(rank)  # the other's callback is there before there is anything to call it for
    future = dist.all_reduce(torch.ones(2), async_op=True).get_future()
    future.then(lambda _: time.sleep(1))
    child = os.fork()
    if child == 0:
        sys.exit()  # which is not the end of the rank
    os.waitpid(child, 0)
    while not future.done():
        time.sleep(0.001)
    future.value()
"""


class Launch(unittest.TestCase):
    def run_ranks(self, act, hang_timeout=3):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "program.py"
            program.write_text(PROGRAM)
            command = [LOCKSTEP, "run", "-np", "2", "--log-line-prefix=", "--hang-timeout", str(hang_timeout), "--max-restarts", "1", program, act]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ | {"PYTHON_EXEC": sys.executable})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("is done, of 2"), 2, done.stdout)
        return done.stderr

    def test_a_rank_that_hangs_is_found_and_what_the_other_waits_for(self):
        errors = self.run_ranks("hang")
        self.assertRegex(errors, r"restart 1 of 1: rank 1 of 2 \(host [^)]*\) hangs: it is in no call of a group; its last one was "
                                 r"all_reduce \d+ \(80 bytes\); no progress for [0-9.]+ s, after step 5\n")
        self.assertRegex(errors, r"rank 0 waits in all_reduce \d+ \(80 bytes\)\n")
        self.assertRegex(errors, r'\n  [|] File "[^"]*program.py", line \d+ in disturb\n')

    def test_a_program_that_a_rank_starts_is_not_the_rank(self):
        self.assertRegex(self.run_ranks("child"), r"restart 1 of 1: rank 1 of 2 \(host [^)]*\) hangs")

    def test_a_process_that_is_forked_does_not_end_the_group(self):
        for act in ("fork", "fork after thread"):
            self.assertEqual(self.run_ranks(act, hang_timeout=100), "")

    def test_a_rank_that_is_killed_is_started_again(self):
        errors = self.run_ranks("kill")
        self.assertRegex(errors, r"restart 1 of 1: rank 1 of 2 \(host [^)]*\) was killed by SIGKILL")
        self.assertRegex(errors, r"DistBackendError: .*rank 1 .*has ended")
        self.assertRegex(errors, r"training resumed [0-9.]+ s after the failure")

    def test_collectives_are_signs_of_life(self):
        self.assertNotIn("hangs", self.run_ranks("evaluate"))

    def test_who_waits_for_a_rank_that_lives_does_not_hang(self):
        self.assertNotIn("hangs", self.run_ranks("alone"))

    def test_a_program_may_end_while_its_group_is_in_a_callback(self):
        self.assertNotIn("restart", self.run_ranks("leave", hang_timeout=100))


if __name__ == "__main__":
    unittest.main()
