"""Holds README.md and docs/*.md to the library and the command: names are in lockstep.h, commands can be given."""

import os
import re
import shlex
import subprocess
import unittest
from pathlib import Path

import pages

ROOT = pages.ROOT
LOCKSTEP = str(Path(os.environ["LOCKSTEP_BINARY_DIR"]) / "lockstep")
LANGUAGES = {"bash", "cmake", "console", "cpp", "diff", "python", "text"}
# Layers of which users' programs see all but what is in these folders.
LAYERS = ("comm", "core", "data", "nn", "parallel", "snapshot")
INSIDE = re.compile(r"lockstep/(nn/fused/|data/(check|download|transforms/ops)/)")
# Tensors have it.
NOT_OURS = {"backward"}
# Types and functions.
DECLARED = re.compile(
    r"^(?:class|struct|enum class) (\w+)(?![^\n]*;$)|^[A-Za-z_][\w:<>,&* ]*[ &*](\w+)\([^;{]*[;{]", re.MULTILINE)
MEMBER = re.compile(r"^  [A-Za-z_][\w:<>,&* ]*[ &*](\w+)\(", re.MULTILINE)


def headers_of(start):
    """Returns all headers of ours that one includes, itself or through others."""
    found, waiting = set(), [start]
    while waiting:
        header = waiting.pop()
        if header not in found:
            found.add(header)
            waiting += re.findall(r'#include "(lockstep/[^"]+)"', (ROOT / header).read_text())
    return found


def declarations():
    """Returns the headers that declare a name, by name."""
    found = {}
    for layer in LAYERS:
        for path in (ROOT / "lockstep" / layer).rglob("*.h"):
            header = str(path.relative_to(ROOT))
            if not INSIDE.match(header):
                for match in DECLARED.finditer(path.read_text()):
                    found.setdefault(match.group(1) or match.group(2), set()).add(header)
    return found


def names_in(page):
    """Returns the types and functions that a page names, in blocks of C++ and between backticks."""
    text = page.read_text()
    code = [block.text for block in pages.reader.blocks_of(text) if block.language in ("cpp", "diff")]
    code += re.findall(r"`([^`\n]+)`", re.sub(r"(?ms)^```.*?^```$", "", text))
    return set(re.findall(r"(?<![.>\w-])([A-Za-z]\w*(?=\()|[A-Z]\w*[a-z]\w*)", " ".join(code))) - NOT_OURS


def tried(words):
    """Returns the words with --help where it ends the parsing, and what a launcher would start."""
    if words[1] in ("run", "hosts"):
        end = words.index("--") if "--" in words else len(words) - 1  # a program without arguments
        return [*words[:end], "--help"], words[end + 1 :]
    if words[1] in ("bench", "plan") and "--" in words:  # each run of its grid is a training with these flags
        end = words.index("--")
        return [*words[:end], "--help"], ["lockstep", "train", *words[end + 1 :]]
    return [*words, "--help"], []


class CodeTest(unittest.TestCase):
    def test_every_block_says_what_it_is(self):
        for page in pages.PAGES:
            for block in pages.reader.blocks_of(page.read_text()):
                self.assertIn(block.language, LANGUAGES, f"{page.name}:{block.line}")

    def test_every_program_is_saved_and_built(self):
        for page, block in pages.blocks("cpp", "cmake"):
            if block.language == "cmake" or pages.is_program(block):
                self.assertIn(page.name, ("README.md", "plugins.md"), "tests/find_package builds what these say to save")
                self.assertIsNotNone(pages.reader.file_of(block), block.line)

    def test_all_names_are_in_the_umbrella_header(self):
        reached, declared = headers_of("lockstep/lockstep.h"), declarations()
        members = {name for header in reached for name in MEMBER.findall((ROOT / header).read_text())}
        named = 0
        for page in pages.PAGES:
            included = set(re.findall(r"#include <(lockstep/[^>]+)>", page.read_text()))  # by the page's own code
            for name in sorted(names_in(page) & declared.keys() - members):
                named += 1
                self.assertTrue(declared[name] & (reached | included), f"{page.name}: {name} of {declared[name]}")
        self.assertGreater(named, 50)

    def test_the_tests_of_the_security_page_exist(self):
        rows = re.findall(r"\| `([\w/.]+)`: ([\w.]+) \|", (ROOT / "docs/security.md").read_text())
        self.assertGreater(len(rows), 80)
        for file, name in rows:
            suite, _, test = name.rpartition(".")
            defined = rf"TEST(_F|_P)?\(\s*{suite},\s*{test}\)|def {test}\(|NAME {test} "
            self.assertRegex((ROOT / "tests" / file).read_text(), defined, f"{file}: {name}")

    def test_python_can_be_read(self):
        for page, block in pages.blocks("python"):
            compile(block.text, f"{page.name}:{block.line}", "exec")


class CommandTest(unittest.TestCase):
    def expect_parsed(self, where, words):
        if words and words[0] == "./dev" and words[1] == "train":
            words = ["lockstep", *words[1:]]
        if not words or words[0] != "lockstep":
            return 0
        flags, started = tried(words)
        done = subprocess.run([LOCKSTEP, *flags[1:]], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, f"{where}: {' '.join(words)}\n{done.stderr}")
        return 1 + self.expect_parsed(where, started)

    def test_all_flags_are_known(self):
        count = 0
        for where, command in pages.commands():
            for words in pages.words_of(command):
                count += self.expect_parsed(where, words)
        self.assertGreater(count, 40)

    def test_plans_answer_what_the_pages_say(self):
        count = 0
        for page, block in pages.blocks("console"):
            command, _, answer = block.text.partition("\n")
            words = shlex.split(command)[1:]
            if answer.strip() and words[:2] == ["lockstep", "plan"]:
                count += 1
                printed = subprocess.run([LOCKSTEP, *words[1:]], capture_output=True, text=True, timeout=60, check=True).stdout
                self.assertIn(" ".join(answer.split()), " ".join(printed.split()), f"{page.name}:{block.line}")
        self.assertGreater(count, 2)

    def test_profiles_that_come_with_the_program_are_listed(self):
        page = (ROOT / "docs/planning.md").read_text()
        names = [file.stem for file in (ROOT / "bench/cli/plan/profiles").glob("*.json")]
        self.assertEqual([name for name in names if f"`{name}`" not in page], [])
        self.assertGreater(len(names), 20)

    def test_a_flag_that_is_not_there_is_seen(self):
        for line in ("lockstep train --epoch 3", "lockstep run --np 2 -- true", "lockstep hosts --cout 2 -- true",
                     "lockstep hosts --count 2 -- lockstep train --epoch 3", "lockstep data synthesise cifar100 x"):
            with self.assertRaises(AssertionError, msg=line):
                self.expect_parsed("here", line.split())

    def test_verbs_of_dev_are_known(self):
        usage = subprocess.run(["./dev", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        known = set(re.findall(r"^  ([a-z-]+) ", usage, re.MULTILINE))
        for where, command in pages.commands():
            for words in pages.words_of(command):
                if words and words[0] == "./dev":
                    self.assertIn(words[1], known, where)

    def test_shell_can_be_read(self):
        for page, block in pages.blocks("bash"):
            done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""), f"{page.name}:{block.line}")


if __name__ == "__main__":
    unittest.main()
