"""What a rank tells the launcher that started it, `lockstep run`: how far it is, and that it lives.

The launcher reads both in memory that it shares with its ranks; lockstep/liveness has the other side and the meaning. Importing this takes
no time, and torch is not needed.
"""

import atexit
import faulthandler
import fcntl
import mmap
import operator
import os
import signal
import stat
import struct
import time

# A page is a header, and a slot for each local rank: ProgressSlot of lockstep/liveness/own_slot.h.
_MAGIC = 0x32474F5250534C  # "LSPROG2", the 2 is the version
_HEADER_BYTES = 64
_SLOT_BYTES = 64 + 16 * 64
_STEP, _FIRST_STEP_NS, _SIGNS = 0, 1, 2  # words of 64 bits
_PROCESS, _STACK_SIGNAL, _STACKS = 6, 7, 11  # words of 32 bits
_GET_SEALS, _SEALS = 1034, 0x7  # of fcntl, which has names for them only where Python was built for a new libc

_slot = None


class _Slot:
    """The part of a launcher's page that is this process's."""

    def __init__(self, page, rank):
        facts = memoryview(page)[_HEADER_BYTES + rank * _SLOT_BYTES:][:64]
        self.words, self.halves = facts.cast("q"), facts.cast("i")
        self.answer_for_stacks(signal.SIGRTMAX - 6)
        self.words[_STEP] = max(self.words[_STEP], 0)
        self.halves[_PROCESS] = os.getpid()
        atexit.register(self.leave)

    def leave(self):
        """Ends the watch: who has reached its end makes no more steps, but may take long to upload files or to free memory."""
        if self.halves[_PROCESS] == os.getpid():  # not a child that was forked
            self.halves[_PROCESS] = 0

    def answer_for_stacks(self, number):
        """Has the launcher's question answered by lines of Python, unless the program handles the signal itself."""
        if signal.getsignal(number) not in (signal.SIG_DFL, None):  # None: our own answer in C++
            return
        file = _memory_file("lockstep-stacks")
        faulthandler.register(number, file=file, all_threads=True)
        self.halves[_STACKS] = file
        self.halves[_STACK_SIGNAL] = number

    def report(self, step):
        self.words[_STEP] = max(self.words[_STEP], step)
        if step > 0 and self.words[_FIRST_STEP_NS] == 0:
            self.words[_FIRST_STEP_NS] = time.monotonic_ns()

    def give_sign(self):
        self.words[_SIGNS] += 1


def _memory_file(name):
    """Returns a descriptor of a new file in memory. Pythons of conda and uv may lack memfd_create(), but not their libc."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name)
    import ctypes

    file = ctypes.CDLL(None, use_errno=True).memfd_create(name.encode(), 1)  # MFD_CLOEXEC
    if file < 0:
        raise OSError(ctypes.get_errno(), "memfd_create")
    return file


def _attached():
    """Returns this process's slot, or False where no launcher of ours reads it."""
    global _slot
    if _slot is None:
        path = os.environ.get("LOCKSTEP_PROGRESS")
        _slot = bool(path) and _map(path, int(os.environ.get("LOCAL_RANK", 0)))
    return _slot


# A variable that outlived its launcher may name any file by now, even one that would block.
def _map(path, rank):
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        page = _page(file, rank)
        return page is not None and _is_free(page, rank) and _Slot(page, rank)
    except OSError:  # no file of memory, which has seals
        return False
    finally:
        os.close(file)


def _is_free(page, rank):
    """Returns whether no other process has the slot: a program that a rank starts has the rank's variables, and is not the rank."""
    holder, = struct.unpack_from("=i", page, _HEADER_BYTES + rank * _SLOT_BYTES + 4 * _PROCESS)
    if holder in (0, os.getpid()):
        return True
    try:
        os.kill(holder, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


def _page(file, rank):
    """Returns the memory of a file, or None if it is not a page of this user's that has a slot for this rank."""
    facts = os.fstat(file)
    if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.geteuid() or fcntl.fcntl(file, _GET_SEALS) != _SEALS:
        return None
    if facts.st_size < _HEADER_BYTES:
        return None
    page = mmap.mmap(file, facts.st_size)
    magic, slots = struct.unpack_from("=Qq", page)
    is_ours = magic == _MAGIC and 0 <= rank < slots and facts.st_size == _HEADER_BYTES + slots * _SLOT_BYTES
    return page if is_ours else None


def report_step(step):
    """Tells `lockstep run` how many optimizer steps are done, of the whole training and not of this attempt alone.

    From the first call on, a rank without a sign of life for `--hang-timeout` hangs, and counts as failed: no step, no call of a group of
    the backend "lockstep" that begins or ends, no sign_of_life(). Before the first step, step 0, it has five times as long. Takes a
    microsecond; elsewhere than under `lockstep run` it does nothing. One thread of a rank calls it.

    Args:
        step: the number of steps. One that is not above the last changes nothing.

    Raises:
        TypeError: the step is no whole number.
        ValueError: the step is negative, or has more than 63 bits.
    """
    step = operator.index(step)
    if not 0 <= step < 2**63:
        raise ValueError(f"lockstep.report_step: no number of steps: {step}")
    if slot := _attached():
        slot.report(step)


def sign_of_life():
    """Tells `lockstep run` that a rank which reports its steps lives, where the next one may take long: in an evaluation, for example."""
    if _slot:
        _slot.give_sign()
