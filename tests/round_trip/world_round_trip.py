"""Python's torchrun and `lockstep run` show the same world to the ranks of the same command."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from programs import BINARIES

# Not MASTER_ADDR, which torchrun fills with the host's name and lockstep with an address; not MASTER_PORT,
# TORCHELASTIC_ERROR_FILE, _RUN_ID and _USE_AGENT_STORE, which differ by design or from run to run.
NAMES = ["RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE",
         "ROLE_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS",
         "TORCHELASTIC_SIGNALS_TO_HANDLE", "OMP_NUM_THREADS", "TORCH_NCCL_ASYNC_ERROR_HANDLING"]
PROGRAM = f"""
import json, os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
names = {NAMES}
seen = {{name: os.environ.get(name) for name in names}} | {{"sum": total.item(), "arguments": sys.argv[1:]}}
open(os.path.join(sys.argv[1], f"{{dist.get_rank()}}-{{os.environ['TORCHELASTIC_RESTART_COUNT']}}"), "w").write(json.dumps(seen))
dist.barrier()
dist.destroy_process_group()
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and "--fails" in sys.argv and os.environ["RANK"] == "1":
    sys.exit(7)
"""


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return str(taken.getsockname()[1])


class World:
    """The launchers of one command, and what its ranks saw."""

    def __init__(self, launcher, flags, nodes, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "program.py"
            program.write_text(PROGRAM)
            seen = Path(folder) / "seen"
            seen.mkdir()
            command = [*launcher, *flags, *program_words(launcher, program), str(seen), *arguments]
            # One store an attempt: in a store that torchrun 2.15 keeps, ranks that it starts again find those of the first attempt.
            environment = os.environ | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
            launchers = [subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                         for _ in range(nodes)]
            errors = [each.communicate(timeout=180)[1] for each in launchers]
            self.codes = [each.returncode for each in launchers]
            self.errors = "\n".join(errors)
            self.ranks = {path.name: json.loads(path.read_text()) for path in seen.iterdir()}
        for rank in self.ranks.values():
            rank["arguments"] = rank["arguments"][1:]  # not the folder


def program_words(launcher, program):
    return [str(program)] if launcher == TORCHRUN else [sys.executable, str(program)]


TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
OURS = [str(BINARIES / "lockstep"), "run"]


class WorldRoundTrip(unittest.TestCase):
    def compare(self, flags, nodes=1, arguments=(), ranks=2):
        worlds = {}
        for name, launcher in (("torchrun", TORCHRUN), ("lockstep", OURS)):
            port = free_port()
            given = [flag.replace("PORT", port) for flag in flags]
            worlds[name] = World(launcher, given, nodes, *arguments)
            self.assertEqual(worlds[name].codes, [0] * nodes, f"{name}: {worlds[name].errors}")
        self.assertEqual(len(worlds["torchrun"].ranks), ranks)
        self.assertEqual(worlds["torchrun"].ranks, worlds["lockstep"].ranks)

    def test_ranks_of_one_node(self):
        self.compare(["--nproc-per-node", "2", "--role", "trainer"], arguments=["--epochs", "3"])

    def test_ranks_of_one_node_at_a_given_port(self):
        self.compare(["--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port", "PORT"])

    def test_two_nodes_that_meet(self):
        self.compare(["--nnodes", "2", "--nproc-per-node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:PORT",
                      "--rdzv-id", "both", "--max-restarts", "2"], nodes=2, ranks=4)

    def test_ranks_that_are_started_again(self):
        self.compare(["--nproc-per-node", "2", "--max-restarts", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:PORT",
                      "--rdzv-id", "again"], arguments=["--fails"], ranks=4)


if __name__ == "__main__":
    unittest.main()
