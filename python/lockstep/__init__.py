"""Lockstep for Python: exports models that `lockstep train` trains without Python.

`cmake_prefix_path` is the prefix of the headers, libraries and CMake package that a wheel carries: pass it as
-DCMAKE_PREFIX_PATH where a C++ project says find_package(Lockstep).
"""

from pathlib import Path

from lockstep._export import export

__all__ = ["cmake_prefix_path", "export"]

cmake_prefix_path = str(Path(__file__).resolve().parent)
