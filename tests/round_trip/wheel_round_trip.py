"""The wheel of ./dev wheel in a fresh environment that has PyTorch alone: it installs, trains, builds and leaves nothing.

The environment has links to this Python's packages, so nothing is downloaded.
"""

import os
import sys
import sysconfig
import unittest
from pathlib import Path

from packages import ROOT, Package, outside_test, output_of, sources_of_headers, sources_with, the_only

SYSTEM = tuple(f"lib{name}." for name in ("c", "m", "dl", "rt", "pthread", "util", "resolv", "gcc_s", "stdc++"))
OTHERS = ("pip", "lockstep", "__pycache__")


class Environment:
    """A fresh one with the wheel in it."""

    def __init__(self, place):
        self.place = place
        self.bin = self.place / "bin"
        output_of(sys.executable, "-m", "venv", "--without-pip", self.place)
        packages = Path(self.python("import sysconfig; print(sysconfig.get_path('purelib'))"))
        for entry in Path(sysconfig.get_path("purelib")).iterdir():
            if not entry.name.startswith(OTHERS):
                (packages / entry.name).symlink_to(entry)
        self.before = self.files()
        self.pip("install", "--no-index", the_only("lockstep_torch-*.whl"))

    def files(self):
        return {path.relative_to(self.place) for path in self.place.rglob("*")}

    def python(self, code):
        return output_of(self.bin / "python", "-c", code).strip()

    def pip(self, *words):
        output_of(sys.executable, "-m", "pip", "--python", self.bin / "python", "--disable-pip-version-check", *words)


class WheelRoundTrip(Package):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.environment = Environment(cls.folder / "environment")
        cls.lockstep = cls.environment.bin / "lockstep"
        cls.prefix = cls.environment.python("import lockstep; print(lockstep.cmake_prefix_path)")

    def test_the_command_trains_and_starts_no_python(self):
        self.assertEqual(self.lockstep.read_text().splitlines()[0], "#!/bin/sh")
        link = self.folder / "link"
        link.symlink_to(self.lockstep)
        self.expect_command_trains(link)

    def test_libraries_are_inside_but_for_those_of_torch_and_of_the_system(self):
        programs = list(Path(self.prefix, "bin").iterdir())
        self.assertEqual(len(programs), 4)
        [extension] = Path(self.prefix).glob("_backend*.so")
        torch = self.environment.python("import torch; print(torch.__path__[0])")
        loaded = ("env", f"LD_LIBRARY_PATH={torch}/lib")  # torch is loaded before the extension
        for program, surroundings in [(program, ()) for program in programs] + [(extension, loaded)]:
            for line in output_of(*surroundings, "ldd", program).splitlines():
                name, _, found = line.strip().partition(" => ")
                if found and not name.startswith(SYSTEM):
                    self.assertTrue(found.startswith(str(self.environment.place)), f"{program.name}: {line}")

    def test_it_needs_the_torch_that_it_was_built_with(self):
        needed = self.environment.python("from importlib.metadata import requires; print(*requires('lockstep-torch'))")
        major, minor, _ = self.environment.python("import torch; print(torch.__version__)").split(".", 2)
        self.assertEqual(needed, f"torch=={major}.{minor}.*")

    def test_licences_of_what_is_inside_are_inside(self):
        libraries = {path.name for path in Path(self.prefix, "lib").glob("*.so*")}
        [folder] = Path(self.prefix).parent.glob("lockstep_torch-*.dist-info/licenses")
        self.expect_licenses(folder, sources_of_headers() | sources_with(f"*/{os.uname().machine}-linux-gnu/{name}" for name in libraries))
        self.assertEqual(libraries, {line.split()[0] for line in (folder / "libraries.txt").read_text().splitlines()[2:]})
        self.assertEqual((folder / "LICENSE").read_text(), (ROOT / "LICENSE").read_text())

    def test_torch_distributed_finds_the_backend(self):
        script = self.folder / "script.py"
        script.write_text("import torch, torch.distributed as dist\n"
                          "dist.init_process_group('lockstep')\n"
                          "total = torch.tensor([dist.get_rank() + 1.0])\n"
                          "dist.all_reduce(total)\n"
                          "print('total', total.item(), flush=True)\n"
                          "dist.destroy_process_group()\n")
        output = output_of(self.lockstep, "run", "--nproc-per-node", 2, "--", self.environment.bin / "python", script)
        self.assertIn("total 3.0", output)

    def test_a_python_without_the_backend_says_so_and_has_all_else(self):
        other = Environment(self.folder / "other")
        [extension] = other.place.glob("lib/python3*/site-packages/lockstep/_backend.*")
        extension.rename(extension.with_name("_backend.cpython-399-x86_64-linux-gnu.so"))
        with self.assertRaisesRegex(AssertionError, r"the package has _backend\.cpython-399\S+, not the extension for Python 3\."):
            other.python("import tempfile; import torch.distributed as dist; dist.init_process_group('lockstep', init_method=f'file://{tempfile.mkdtemp()}/store', rank=0, world_size=1)")
        with self.assertRaisesRegex(AssertionError, "ImportError: lockstep.distributed: the package has _backend"):
            other.python("import lockstep.distributed")
        other.python("import lockstep; lockstep.export")
        output_of(other.bin / "lockstep", "help")

    def test_the_backend_passes_its_tests(self):
        for name in ("backend", "parallel", "launch"):
            output_of(self.environment.bin / "python", ROOT / f"tests/python/{name}_test.py")

    def test_profiles_pass_their_tests(self):
        output_of(self.environment.bin / "python", ROOT / "tests/python/profile_test.py")

    def test_users_build_against_it(self):
        package = f"-DCMAKE_PREFIX_PATH={self.prefix}"
        self.expect_plugin_trains(self.lockstep, package)
        build = outside_test.configure("by-wheel", package)
        self.assertRegex((build / "CMakeCache.txt").read_text(), f"LibTorch_CPU_LIBRARY:FILEPATH={self.environment.place}/.*")
        self.expect_trains(self.lockstep, build, outside_test.unpacked_clothes("clothes"))

    def test_nothing_is_left(self):
        environment = Environment(self.folder / "left")
        self.assertNotEqual(environment.files(), environment.before)
        environment.pip("uninstall", "--yes", "lockstep-torch")
        self.assertEqual(environment.files(), environment.before)


if __name__ == "__main__":
    unittest.main()
