"""A rank of Python that makes five steps, and then what its arguments say, if it is of the first attempt: hang_probe.py spin 1."""

import os
import signal
import sys
import time

import lockstep

assert "torch" not in sys.modules  # reporting needs none
act, rank = sys.argv[1], int(sys.argv[2])
if act == "spin":
    vars(os).pop("memfd_create", None)  # as in Pythons that were built for an old libc
for step in range(1, 6):
    lockstep.report_step(step)
if act == "spin":
    if os.fork() == 0:
        sys.exit()  # which does not end the watch of its parent
    os.wait()
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
