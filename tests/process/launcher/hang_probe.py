"""A rank of Python that makes five steps, and then what its arguments say, if it is of the first attempt: hang_probe.py spin 1."""

import os
import signal
import sys
import time

import lockstep

assert "torch" not in sys.modules  # reporting needs it not, and nobody waits for it
act, rank = sys.argv[1], int(sys.argv[2])
for step in range(1, 6):
    lockstep.report_step(step)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    if act == "stop" and rank == int(os.environ["RANK"]):
        os.kill(os.getpid(), signal.SIGSTOP)
    while act == "spin" and rank == int(os.environ["RANK"]):
        pass
    for _ in range(120 if act in ("stop", "spin") else 8):  # until it is ended, or longer than the timeout
        lockstep.sign_of_life()
        time.sleep(0.5)
lockstep.report_step(6)
print("rank", os.environ["RANK"], "is done")
