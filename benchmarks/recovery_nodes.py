#!/usr/bin/env python3
"""Times how long training on two nodes of two ranks stops when a rank, or a whole node, is killed: up to the next step.

    benchmarks/recovery_nodes.py                                        Lockstep only
    benchmarks/recovery_nodes.py --peer-python VENV/bin/python          and torchrun elastic, in turn

The nodes are launchers on this host that find each other. Each round starts mnist-small on Fashion-MNIST with ranks that save
every 50 steps, kills by SIGKILL one of the ranks of the node that does not serve, or that node's launcher and ranks, waits for
the first step of a new rank 0, and ends the run. A lost node leaves a world of one. The ranks of a node are killed with its
launcher because those of torchrun would go on training without it. Both sides are observed from outside in the same way: by the
line that rank 0 writes after a step. What the peer does is in peers/mnist_restart.py.
"""

import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import recovery
from commands import ROOT, parser_of, processes_where, stat_of, variables_of



def parse_arguments():
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=12, help="of each kind of kill")
    parser.add_argument("--kinds", default="rank,node", help="what is killed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--spares", action="store_true", help="Lockstep's ranks have spares")
    parser.add_argument("--peer-python", help="a Python that can import torch")
    return parser.parse_args()


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def meeting(port):
    return ["--nnodes", "1:2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "recovery",
            "--nproc-per-node", "2", "--max-restarts", "3"]


def lockstep_side(arguments, folder, port):
    command = [arguments.lockstep, "run", *meeting(port), *(["--spares"] if arguments.spares else []), "--"]
    command += [arguments.lockstep, "train", "--model", "mnist-small"]
    command += ["--data", "fashion-mnist", "--backend", "gloo", "--epochs", "1000", "--batch-size", "128"]
    command += ["--log-interval", "1", "--progress", "none", "--snapshot-interval", f"{recovery.INTERVAL}steps"]
    return command + ["--output", str(folder / "run")], folder / "run/metrics.jsonl"


def peer_side(arguments, folder, port):
    # Best settings: by default a dead launcher is noticed after 15 s, a dead worker after 0.1 s.
    settings = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=2"
    command = [arguments.peer_python, "-m", "torch.distributed.run", *meeting(port), "--rdzv-conf", settings]
    command += ["--monitor-interval", "0.02", str(ROOT / "benchmarks/peers/mnist_restart.py"), "--folder", str(folder)]
    return command + ["--interval", str(recovery.INTERVAL)], folder / "steps.jsonl"


def last_step(path):
    """Returns which rank 0 wrote the newest complete line, and its step; (None, 0) before there is one."""
    record = recovery.last_record(path)
    return (record.get("process", record["restart"]), record["step"]) if record else (None, 0)


def ranks_in(launcher):
    """Returns the ranks that this launcher has started."""
    return processes_where(lambda process: int(stat_of(process)[1]) == launcher
                           and any(variable.startswith(b"RANK=") for variable in variables_of(process)))


def kill(process, number=signal.SIGKILL):
    try:
        os.kill(process, number)
    except ProcessLookupError:
        pass  # it has ended with its launcher


def members(mark):
    """Returns all processes that have this word in their environment: what a round started, and what that started in turn."""
    return processes_where(lambda process: mark.encode() in variables_of(process))


def end(nodes, mark):
    """Ends what the round started, and no other process: torchrun's ranks go on after a killed launcher."""
    for node in nodes:
        recovery.end(node)
    while left := members(mark):
        for process in left:
            kill(process)
        time.sleep(0.05)


def seconds_to_next_step(side, kind, arguments, source):
    with tempfile.TemporaryDirectory() as name:
        command, lines = side(arguments, Path(name), free_port())
        mark = f"RECOVERY_ROUND={name}"
        environment = dict(os.environ, OMP_NUM_THREADS="1", TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1", RECOVERY_ROUND=name)
        errors = Path(name) / "errors"
        nodes = []
        try:
            with errors.open("ab") as stream:
                for _ in range(2):
                    nodes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
                                                  env=environment, start_new_session=True))
                    time.sleep(1 if side is peer_side else 0.1)  # the first one serves
            recovery.wait_for(nodes[0], lines, lambda line: line[1] > recovery.INTERVAL and len(ranks_in(nodes[1].pid)) == 2, last_step,
                              "the node that serves")
            before = last_step(lines)[0]
            time.sleep(source.uniform(0, 1))
            victims = ranks_in(nodes[1].pid)
            victims = [nodes[1].pid, *victims] if kind == "node" else [source.choice(victims)]
            begin = time.monotonic()
            for victim in victims:
                kill(victim)
            return recovery.wait_for(nodes[0], lines, lambda line: line[0] != before, last_step, "the node that serves") - begin
        except RuntimeError as error:
            print(f"{side.__name__}: {error}\n{errors.read_text(errors='replace')[-2000:]}", file=sys.stderr)
            return None
        finally:
            end(nodes, mark)


def main():
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a round that is cut short leaves nothing
    source = random.Random(arguments.seed)
    sides = {"lockstep": lockstep_side} | ({"torchrun": peer_side} if arguments.peer_python else {})
    for kind in arguments.kinds.split(","):
        medians = recovery.medians_of(
            sides, arguments.rounds, kind, lambda side: seconds_to_next_step(side, kind, arguments, source))
        if len(medians) == 2:
            print(f"{kind}: ratio of medians {medians[1] / medians[0]:.2f}")


if __name__ == "__main__":
    main()
