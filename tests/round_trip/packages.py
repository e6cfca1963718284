"""What the tests of packages share: a folder each, where users' projects are built; the licences that must be in a package."""

import json
import os
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ["LOCKSTEP_BINARY_DIR"]).parent
FOLDER = BUILD / "round_trip"  # the same each time, so that ccache knows what users' projects compile
PROGRAMS = ("lockstep", "lockstep-train", "lockstep-bench", "lockstep-collectives")
SYSTEM = ("glibc", "gcc-12", "linux")  # LibTorch needs them, too
os.environ |= {"LOCKSTEP_BUILD": str(FOLDER), "LOCKSTEP_OUTSIDE": str(FOLDER)}
sys.path.append(str(ROOT / "tests/find_package"))
import outside_test  # noqa: E402  builds projects of users
from outside_test import output_of  # noqa: E402


def the_only(pattern):
    """Returns the file of dist/ that `./dev` has just made."""
    found = list((ROOT / "dist").glob(pattern))
    if len(found) != 1:
        raise FileNotFoundError(f"one dist/{pattern} is tested, not {found}")
    return found[0]


def sources_of(packages):
    """Returns the source packages of Debian that these are made of."""
    return set(output_of("dpkg-query", "--show", "--showformat=${source:Package}\n", *packages).split())


def sources_with(patterns):
    """Returns the source packages of Debian that have these files."""
    lines = output_of("dpkg-query", "--search", *sorted(patterns)).splitlines()
    return sources_of({name for line in lines for name in line.rpartition(": ")[0].split(", ")})


def sources_of_headers():
    """Returns the source packages of Debian whose headers the compiler has read for the programs."""
    objects = [word for word in output_of("ninja", "-C", BUILD, "-t", "inputs", *PROGRAMS).split() if word.endswith((".o", ".pch", ".gch"))]
    read = {os.path.normpath(line.strip()) for line in output_of("ninja", "-C", BUILD, "-t", "deps", *objects).splitlines()
            if line.startswith(" ")}
    return sources_with(path for path in read if path.startswith("/usr/include/"))


class Package(outside_test.Outside):
    @classmethod
    def setUpClass(cls):
        cls.folder = outside_test.FOLDER = FOLDER / cls.__name__
        shutil.rmtree(cls.folder, ignore_errors=True)
        cls.folder.mkdir(parents=True)
        cls.addClassCleanup(shutil.rmtree, cls.folder)

    def expect_licenses(self, folder, sources):
        self.assertGreater(len(sources - set(SYSTEM)), 2)
        for source in sources - set(SYSTEM):
            self.assertTrue((folder / source / "copyright").is_file(), f"{folder} has no licence of {source}")
        named = {name for path in folder.glob("*/copyright")
                 for name in re.findall(r"/usr/share/common-licenses/(\w+(?:-[\d.]*\d)?)", path.read_text(errors="replace"))}
        self.assertEqual(named, {path.name for path in (folder / "common-licenses").iterdir()})
        self.assertIn("Facebook", (folder / "torch/LICENSE").read_text())

    def expect_command_trains(self, lockstep):
        run = outside_test.fresh("run")
        output_of(lockstep, "train", "--model", "mnist-small", "--data", "fashion-mnist", "--nproc-per-node", 2, "--epochs", 1,
                  "--progress", "none", "--output", run)
        with open(run / "summary.json", encoding="utf-8") as summary:
            self.assertGreater(json.load(summary)["test_accuracy"], 0.7)
        self.assertIn("data-parallel", output_of(lockstep, "bench", "--list"))
        output_of(lockstep, "collectives", "--help")
