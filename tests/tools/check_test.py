"""Feeds trees that break a rule to the checkers and sees that they complain."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"
HEADER = "#pragma once\n"


class CheckerTest(unittest.TestCase):
    """Writes files into a folder of its own and runs a checker on it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        subprocess.run(["git", "init", "--quiet", self.root], check=True)

    def write(self, files):
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def run_checker(self, files, *flags):
        self.write(files)
        return subprocess.run(
            [sys.executable, TOOLS / self.checker, *flags, self.root], capture_output=True, text=True)

    def assert_clean(self, files):
        done = self.run_checker(files)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def assert_complaint(self, complaint, files):
        done = self.run_checker(files)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(complaint, done.stdout)

    def assert_complaints(self, *cases):
        """Each case is a complaint and the files that bring it about."""
        for complaint, files in cases:
            with self.subTest(complaint, files=list(files)):
                shutil.rmtree(self.root / "lockstep", ignore_errors=True)
                self.assert_complaint(complaint, files)

    def assert_advice(self, advice, files):
        done = self.run_checker(files, "--advice")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, advice, ""))


class LayersTest(CheckerTest):
    checker = "check_layers"

    def test_accepts_includes_that_point_down(self):
        self.assert_clean({
            "lockstep/lockstep.h": '#include "lockstep/train/trainer.h"\n',
            "lockstep/train/trainer.h": '#include "lockstep/parallel/reducer.h"\n#include "lockstep/data/mnist.h"\n',
            "lockstep/comm/gloo_backend.cpp": "#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>\n",
            "lockstep/cli/train/train_main.cpp": "#include <torch/types.h>\n",
            "examples/hello.cpp": "#include <torch/torch.h>\n#include <lockstep/lockstep.h>\n",
        })

    def test_refuses_includes_that_point_elsewhere(self):
        gloo = "#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>\n"
        self.assert_complaints(
            ("lockstep/core/error.h:2: core must not include lockstep/comm/work.h",
             {"lockstep/core/error.h": '#pragma once\n#include "lockstep/comm/work.h"\n'}),
            ("parallel must not include lockstep/data/mnist.h",
             {"lockstep/parallel/reducer.cpp": '#include "lockstep/data/mnist.h"\n'}),
            ("plan must not include bench/study/verdict.h",
             {"lockstep/plan/answer.cpp": '#include "bench/study/verdict.h"\n'}),
            ("the header of Gloo", {"lockstep/comm/gloo_backend.h": gloo}),
            ("the header of Gloo", {"lockstep/comm/a.cpp": gloo, "lockstep/comm/b.cpp": gloo}),
            ("the header of MPI", {"lockstep/comm/a.cpp": "#include <mpi.h>\n"}),
            ("never includes its umbrella", {"lockstep/core/log.cpp": "#include <lockstep/lockstep.h>\n"}),
            ("is no layer", {"lockstep/tricks/fast.h": HEADER}),
            ("lockstep/nn/net.h: names torch::nn:: and includes nothing that declares it",
             {"lockstep/nn/net.h": "#pragma once\n#include <torch/types.h>\nusing Net = torch::nn::Module;\n"}),
            *(("is without LibTorch", {f"lockstep/{file}": "#include <c10/util/Exception.h>\n"}) for file in
              ("core/error.h", "formats/idx.cpp", "launch/launcher.cpp", "plan/cost.h", "cli/main.cpp")),
            ("bench/synthetic must not include bench/study/verdict.h",
             {"bench/synthetic/set.cpp": '#include "bench/study/verdict.h"\n'}),
            ("an example includes", {"examples/hello.cpp": '#include "lockstep/core/error.h"\n'}))


class RoomSizesTest(CheckerTest):
    checker = "room_sizes"

    def run_there(self, *flags):
        (self.root / "tools").mkdir(exist_ok=True)
        shutil.copy(TOOLS / "room_sizes", self.root / "tools")
        return subprocess.run([self.root / "tools/room_sizes", *flags], capture_output=True, text=True)

    def test_refuses_a_room_that_has_grown(self):
        self.write({"lockstep/core/error.h": HEADER, "lockstep/lockstep.h": HEADER, "README.md": "two words\n"})
        self.assertEqual(self.run_there("--write").returncode, 0)
        self.assertEqual(self.run_there().returncode, 0)
        self.write({"lockstep/core/error.h": HEADER * 3, "README.md": "one\n"})
        done = self.run_there()
        self.assertEqual(done.returncode, 1)
        self.assertIn("lockstep/core has grown by 2\n", done.stdout)
        self.assertIn("lockstep, all has grown by 2\n", done.stdout)
        self.assertNotIn("pages, in words has grown", done.stdout)
        self.write({"lockstep/new/error.h": HEADER})
        self.assertIn("lockstep/new has grown by 1\n", self.run_there().stdout)
        self.assertEqual(self.run_there("--write").returncode, 0)
        self.assertEqual(self.run_there().returncode, 0)


class StyleTest(CheckerTest):
    checker = "check_style"

    def test_accepts_a_tidy_tree(self):
        self.assert_clean({
            "CMakeLists.txt": "add_library(core lockstep/core/error.cpp)\n",
            "lockstep/core/error.cpp": '#include "lockstep/core/error.h"\n\n#include <string>\n',
            "lockstep/core/error.h": HEADER,
        })

    def test_advises_against_what_is_long(self):
        body = "  ++count;\n" * 59
        for head, end in (("int count() {\n", "}\n"), ("struct A {\n  int count() {\n", "  }\n};\n")):
            first = 1 + head.count("\n")
            self.assert_clean({"lockstep/core/log.h": HEADER + head + body + end})
            self.assert_advice(f"lockstep/core/log.h:{first}: a function of 61 lines\n", {"lockstep/core/log.h": HEADER + head + body + end})
            self.assert_advice("\n", {"lockstep/core/log.h": HEADER + head + body[11:] + end})
        self.assert_advice("lockstep/core/table.h: 501 lines\n", {"lockstep/core/table.h": HEADER + "\n" * 500})

    def test_refuses_a_type_that_is_not_described_by_a_noun_phrase(self):
        for comment, type_ in (("/// What a run left.", "struct Run {\n"), ("// How it ended.\n// Or not.", "class End\n"),
                               ("/// Is a pair.", "template <class T>\nstruct Pair {\n"), ("  /// What it does.", "  enum class A { kB };\n")):
            with self.subTest(comment):
                self.assert_complaint("lockstep/core/log.h:2: describe a type by a noun phrase",
                                      {"lockstep/core/log.h": f"{HEADER}{comment}\n{type_}"})
        self.assert_clean({"lockstep/core/log.h":
                           HEADER + "/// A run,\n/// What else?\nstruct Run {\n/// What f says.\nstruct stat f(int);\n"
                           "/// What is forward.\nstruct A;\n"})

    def test_refuses_a_script_that_cannot_be_run(self):
        self.assert_complaint("tools/sum.py: begins with #! and cannot be run", {"tools/sum.py": "#!/usr/bin/env python3\n"})
        (self.root / "tools/sum.py").chmod(0o755)
        self.assert_clean({})

    def test_advises_against_a_full_folder(self):
        names = [f"lockstep/core/file_{i}.h" for i in range(46)]
        self.assert_advice("\n", {name: HEADER for name in names[:45]})
        self.assert_advice("lockstep/core: 46 files\n", {names[45]: HEADER})

    def test_refuses_files_that_break_a_rule(self):
        word = "TO" + "DO"
        first = 'lockstep/core/log.cpp: must include "lockstep/core/log.h" before all else'
        built = {"lockstep/core/log.h": HEADER, "CMakeLists.txt": "lockstep/core/log.cpp\n"}
        self.assert_complaints(
            ("name the idea", {"lockstep/core/utils.h": HEADER}),
            ("name the idea", {"lockstep/common/error.h": HEADER}),
            ("name the idea", {"lockstep/core/string_util.h": HEADER}),
            ("lockstep/core/log.h:2: finish it", {"lockstep/core/log.h": f"{HEADER}// {word}: colours\n"}),
            ("lockstep/core/log.h: no #pragma once", {"lockstep/core/log.h": "int log();\n"}),
            ("lockstep/core/log.cpp: listed in no CMakeLists.txt",
             {"lockstep/core/log.cpp": "", "lockstep/core/CMakeLists.txt": "add_library(core catalog.cpp)\n"}),
            (first, {"lockstep/core/log.cpp": "", **built}),
            (first, {"lockstep/core/log.cpp": '#include <string>\n#include "lockstep/core/log.h"\n', **built}))

    def test_refuses_names_of_cuda_outside_the_files_that_are_for_it(self):
        for name in ("torch::kCUDA", "tensor.is_cuda()", "torch::cuda::is_available()", 'find("ncclSend")'):
            with self.subTest(name):
                self.assert_complaint(
                    "lockstep/nn/net.h:2: CUDA's names are for lockstep/device/cuda_library.cpp",
                    {"lockstep/nn/net.h": f"{HEADER}auto found = {name};  // on what?\n"})
        self.assert_clean({"lockstep/nn/net.h": f"{HEADER}// As torch::kCUDA would.\n"})

    def test_refuses_a_main_that_repairs_nothing(self):
        lists = {"CMakeLists.txt": "lockstep/cli/main.cpp examples/hello.cpp benchmarks/sum.cpp tests/probe.cpp\n"}
        plain, wrapped = "int main() { return 0; }\n", 'int main(int argc, char** argv) { return run_program("x", body, argc, argv); }\n'
        for file in ("lockstep/cli/main.cpp", "examples/hello.cpp", "benchmarks/sum.cpp"):
            with self.subTest(file):
                self.assert_complaint(f"{file}: main() must return run_program", {file: plain, **lists})
                self.assert_clean({file: wrapped, "tests/probe.cpp": plain, **lists})

    def test_leaves_alone_what_git_ignores(self):
        self.assert_clean({".gitignore": "/build/\n", "build/utils.cpp": ""})


class TidyTest(unittest.TestCase):
    """Runs check_tidy in a repository of its own, with a clang-tidy that only notes what it was given."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        (self.root / "tools").mkdir()
        shutil.copy(TOOLS / "check_tidy", self.root / "tools")
        (self.root / ".clang-tidy").write_text("")
        tidy = self.root / "bin/clang-tidy-14"
        tidy.parent.mkdir()
        tidy.write_text('#!/bin/sh\nfor word; do case $word in *.cpp) cat "$word" >> "$NOTED" ;; esac; done\n')
        tidy.chmod(0o755)
        self.git("init", "--quiet")
        self.sources = [f"lockstep/{name}.cpp" for name in ("a", "b", "c", "d")]
        (self.root / "lockstep").mkdir()
        (self.root / "compile_commands.json").write_text(json.dumps(
            [{"directory": str(self.root), "file": source, "command": f"g++ -c {source}"} for source in self.sources]))
        self.change(*self.sources)
        self.base = self.git("rev-parse", "HEAD").strip()

    def git(self, *arguments):
        return subprocess.run(["git", "-C", self.root, "-c", "user.name=n", "-c", "user.email=e", *arguments],
                              check=True, capture_output=True, text=True).stdout

    def change(self, *sources):
        for source in sources:
            with open(self.root / source, "a") as file:
                file.write("// changed\n")
        self.git("add", "lockstep")
        self.git("commit", "--quiet", "--message", "changed")

    def run_tidy(self, *arguments):
        noted = self.root / "noted"
        noted.write_text("")
        environment = {**os.environ, "PATH": f"{self.root}/bin:{os.environ['PATH']}", "NOTED": str(noted),
                       "XDG_CACHE_HOME": str(self.root / "cache")}
        done = subprocess.run([sys.executable, self.root / "tools/check_tidy", self.root, "--base", self.base, *arguments],
                              env=environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return sorted(set(re.findall(r"lockstep/\w\.cpp", noted.read_text()))), done.stdout

    def test_takes_what_changed_and_nothing_twice(self):
        self.change("lockstep/b.cpp")
        self.assertEqual(self.run_tidy()[0], ["lockstep/b.cpp"])
        self.assertEqual(self.run_tidy()[0], [])

    def test_takes_the_newest_however_short_the_time(self):
        for source in ("lockstep/d.cpp", "lockstep/a.cpp", "lockstep/b.cpp", "lockstep/c.cpp"):
            self.change(source)
        taken, text = self.run_tidy("--seconds", "-1", "--always", "2")
        self.assertEqual(taken, ["lockstep/b.cpp", "lockstep/c.cpp"])
        self.assertIn("LEFT OUT for lack of time: 2", text)


if __name__ == "__main__":
    unittest.main()
