"""Lockstep for Python: exports models that `lockstep train` trains without Python, and profiles them for `lockstep plan`.

`cmake_prefix_path` is the prefix of the headers, libraries and CMake package that a wheel carries: pass it as
-DCMAKE_PREFIX_PATH where a C++ project says find_package(Lockstep).
"""

from pathlib import Path

from lockstep._export import export
from lockstep._profile import profile

__all__ = ["cmake_prefix_path", "export", "profile"]

cmake_prefix_path = str(Path(__file__).resolve().parent)
