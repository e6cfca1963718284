"""Lockstep for Python: exports models that `lockstep train` trains without Python, profiles them for `lockstep plan`, and tells
`lockstep run` how far a rank is.

`cmake_prefix_path` is the prefix of the headers, libraries and CMake package that a wheel carries: pass it as
-DCMAKE_PREFIX_PATH where a C++ project says find_package(Lockstep).
"""

import importlib
from pathlib import Path

from lockstep._liveness import report_step, sign_of_life

__all__ = ["cmake_prefix_path", "export", "profile", "report_step", "sign_of_life"]

cmake_prefix_path = str(Path(__file__).resolve().parent)
NEED_TORCH = {"export": "lockstep._export", "profile": "lockstep._profile"}  # which takes seconds


def __getattr__(name):
    if name in NEED_TORCH:
        return getattr(importlib.import_module(NEED_TORCH[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *NEED_TORCH})
