"""Builds an outside project against the build folder and against an install, and trains with it on two ranks.

The project is the small net of LibTorch's MNIST example: serial.cpp is what its user had, mnist.cpp has the lines that Lockstep
needs. Everything that is used here, `./dev train` has built: its targets are lockstep and lockstep-train.
"""

import difflib
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/pages"))
import pages  # noqa: E402

PROJECT = Path(__file__).resolve().parent / "outside"
BUILD = Path(os.environ["LOCKSTEP_BUILD"])
FOLDER = Path(os.environ["LOCKSTEP_OUTSIDE"])
CLOTHES = Path("/usr/share/datasets/fashion-mnist")  # of Debian's package dataset-fashion-mnist
MOST_ADDED_LINES = 12


def output_of(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=1000)
    if done.returncode != 0:
        raise AssertionError(f"{command}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def fresh(name):
    shutil.rmtree(FOLDER / name, ignore_errors=True)
    return FOLDER / name


def install(name, *components):
    """Returns a prefix with these components, or with all that is built."""
    prefix = fresh(name)
    for options in [["--component", component] for component in components] or [[]]:
        output_of("cmake", "--install", BUILD, "--prefix", prefix, *options)
    return prefix


def configure(name, *options, project=PROJECT):
    """Returns the build folder of the project, where Lockstep is found by the options."""
    build = fresh(name)
    output_of("cmake", "-S", project, "-B", build, *options)
    return build


def unpacked_clothes(name):
    """Returns a folder of that name with Fashion-MNIST as LibTorch's data set reads it: the same form as MNIST."""
    folder = fresh(name)
    folder.mkdir()
    for packed in CLOTHES.glob("*.gz"):
        (folder / packed.stem).write_bytes(gzip.decompress(packed.read_bytes()))
    return folder


def libraries_in(package, names):
    text = "".join((package / name).read_text() for name in names)
    return set(re.findall(r"liblockstep_\w+\.a", text))


class Outside(unittest.TestCase):
    def expect_learnt(self, *command):
        output = output_of(*command)
        losses = [float(loss) for loss in re.findall(r"step \d+: loss ([\d.]+)", output)]
        self.assertGreaterEqual(len(losses), 3, output)
        self.assertLess(losses[-1], losses[0], output)
        accuracy = re.findall(r"accuracy ([\d.]+)", output)
        self.assertEqual(len(accuracy), 1, f"rank 0 alone prints it: {output}")
        self.assertGreater(float(accuracy[0]), 0.5, output)

    def expect_trains(self, lockstep, build, clothes):
        output_of("cmake", "--build", build, "--target", "mnist")
        self.expect_learnt(lockstep, "run", "--nproc-per-node", "2", build / "mnist", clothes, "400")

    def project_of(self, page, name, package):
        """Returns a build folder of the project whose files a page names; the option `package` says where Lockstep is."""
        project = fresh(name)
        project.mkdir()
        for block in pages.reader.blocks_of((ROOT / page).read_text()):
            if named := pages.reader.NAMED_FILE.search(block.before):
                (project / Path(named.group(1)).name).write_text(block.text)
        build = configure(f"{name}/build", package, project=project)
        output_of("cmake", "--build", build)
        return build

    def expect_plugin_trains(self, lockstep, package):
        plugin = self.project_of("docs/plugins.md", "plugin", package) / "nets.so"
        run = fresh("plugin-run")
        output_of(lockstep, "train", "--plugin", plugin, "--model", "chain", "--nproc-per-node", "2",
                  "--max-steps", "100", "--output", run)
        with open(run / "summary.json", encoding="utf-8") as summary:
            self.assertGreater(json.load(summary)["test_accuracy"], 0.5)


class ByBuildFolder(Outside):
    def test_few_lines_are_added(self):
        serial, spread = ((PROJECT / name).read_text().splitlines() for name in ("serial.cpp", "mnist.cpp"))
        added = [line for line in difflib.ndiff(serial, spread) if line.startswith("+ ")]
        self.assertLessEqual(len(added), MOST_ADDED_LINES, "\n".join(added))

    def test_by_build_folder(self):
        self.expect_trains(BUILD / "bin/lockstep", configure("by-build", f"-DLockstep_DIR={BUILD}"),
                           unpacked_clothes("clothes"))

    def test_the_program_of_the_readme(self):
        hello = self.project_of("README.md", "readme", f"-DLockstep_DIR={BUILD}") / "hello"
        output = output_of(BUILD / "bin/lockstep", "run", "--nproc-per-node", "2", hello)
        self.assertIn("ranks: 2\n", output)
        losses = [float(loss) for loss in re.findall(r"epoch \d: loss ([\d.]+)\n", output)]
        self.assertEqual(len(losses), 2, f"rank 0 alone prints them: {output}")
        self.assertLess(losses[1], losses[0])

    def test_the_plugin_of_the_page(self):
        self.expect_plugin_trains(BUILD / "bin/lockstep", f"-DLockstep_DIR={BUILD}")

    def test_its_libraries_are_those_that_training_needs(self):
        if not (BUILD / "build.ninja").exists():
            self.fail("the build is not one of ninja")
        inputs = output_of("ninja", "-C", BUILD, "-t", "inputs", "lockstep", "lockstep-train")
        built = set(re.findall(r"liblockstep_\w+\.a", inputs))
        wanted = libraries_in(BUILD, ["LockstepTargets.cmake", "LockstepTrainTargets.cmake"])
        self.assertGreater(len(wanted), 15)
        self.assertEqual(wanted - built, set(), "not built by ./dev train")
        core = (BUILD / "LockstepTargets.cmake").read_text()
        for other in ("bench", "CURL", "LibArchive", "run_report", "data_download", "lockstep_cli"):
            self.assertNotIn(other, core)


class ByPrefix(Outside):
    @classmethod
    def setUpClass(cls):
        cls.prefix = install("prefix")
        cls.clothes = unpacked_clothes("clothes-of-prefix")

    def test_the_serial_program_is_whole(self):
        build = configure("serial", f"-DCMAKE_PREFIX_PATH={self.prefix}")
        output_of("cmake", "--build", build, "--target", "serial")
        self.expect_learnt(build / "serial", self.clothes, "400")

    def test_by_installed_prefix(self):
        build = configure("by-prefix", f"-DCMAKE_PREFIX_PATH={self.prefix}")
        self.expect_trains(self.prefix / "bin/lockstep", build, self.clothes)

    def test_installed_programs_run(self):
        lockstep = self.prefix / "bin/lockstep"
        self.assertIn("lockstep train", output_of(lockstep, "help"))
        output_of(lockstep, "train", "--model", "toy", "--data", "mock", "--dry-run")

    def test_core_is_enough_for_the_library(self):
        prefix = install("core-prefix", "core")
        self.assertFalse((prefix / "bin").exists())
        configure("by-core", f"-DCMAKE_PREFIX_PATH={prefix}")

    def test_a_component_that_is_not_there_is_named(self):
        project = fresh("needs-train")
        project.mkdir()
        (project / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(needs LANGUAGES CXX)\n"
            "find_package(Lockstep REQUIRED COMPONENTS core train nccl)\n"
            "get_target_property(type lockstep::train TYPE)\n")
        configure("with-train", f"-DCMAKE_PREFIX_PATH={self.prefix}", project=project)
        with self.assertRaisesRegex(AssertionError, r"(?s)Lockstep.*train"):
            configure("without-train", f"-DCMAKE_PREFIX_PATH={install('bare', 'core')}", project=project)


class Bench(unittest.TestCase):
    def test_installed_programs_run(self):
        lockstep = install("bench-prefix", "train", "bench") / "bin/lockstep"
        self.assertIn("data-parallel", output_of(lockstep, "bench", "--list"))
        output_of(lockstep, "collectives", "--help")


if __name__ == "__main__":
    unittest.main()
