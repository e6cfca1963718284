"""Sees that follow_readme does what a page says, in its order, and stops where the page is wrong."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tests/pages"))

from pages import reader as tool  # noqa: E402: found by the line before


def page(*lines):
    return "\n".join(lines) + "\n"


def steps(*lines):
    return [(step.line, step.shown) for step in tool.steps_of(page(*lines))]


class StepsTest(unittest.TestCase):
    def test_commands_come_in_order_with_their_lines(self):
        self.assertEqual(
            steps("# Title", "", "```bash", "first", "", "second --flag", "```", "text", "```bash", "third", "```"),
            [(4, "first"), (6, "second --flag"), (10, "third")])

    def test_other_languages_are_only_read(self):
        for language in ("", "text", "console", "diff", "python"):
            self.assertEqual(steps(f"```{language}", "rm everything", "```"), [], language)

    def test_a_command_may_have_several_lines(self):
        self.assertEqual(
            steps("```bash", "one \\", "  --two", "for i in 1 2; do", "  echo $i", "done", "last", "```"),
            [(2, "one \\\n  --two"), (4, "for i in 1 2; do\n  echo $i\ndone"), (7, "last")])

    def test_comments_are_no_commands(self):
        self.assertEqual(steps("```bash", "# a word first", "first  # and one after", "```"),
                         [(3, "first  # and one after")])

    def test_code_goes_to_the_file_that_the_text_names(self):
        self.assertEqual(
            steps("Save this as `hello/hello.cpp`:", "", "```cpp", "int main() {}", "```", "and this as `CMakeLists.txt`:",
                  "```cmake", "project(hello)", "```"),
            [(4, "write hello/hello.cpp"), (8, "write CMakeLists.txt")])

    def test_code_without_a_name_is_only_read(self):
        self.assertEqual(steps("The class `Loader` reads:", "and so on", "```cpp", "int x;", "```"), [])
        self.assertEqual(steps("As `hello.cpp`:", "```cpp", "a", "```", "```cpp", "b", "```"), [(3, "write hello.cpp")])

    def test_what_does_not_end_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "README.md:2: this block does not end"):
            steps("text", "```bash", "first")
        with self.assertRaisesRegex(SystemExit, "README.md:3: bash cannot read this command: for i in 1"):
            steps("```bash", "first", "for i in 1; do", "```")


class FollowTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name) / "clone"
        self.folder.mkdir()

    def follow(self, *lines):
        script = tool.script_of(tool.steps_of(page(*lines)))
        return subprocess.run(["bash", "-c", script], cwd=self.folder, capture_output=True, text=True, check=False)

    def test_all_commands_share_one_shell(self):
        done = self.follow("```bash", "export WORD=held", "mkdir inner && cd inner", "```", "```bash",
                           'echo "$WORD in ${PWD##*/}"', "```")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("held in inner", done.stdout)
        self.assertEqual(len([line for line in done.stdout.splitlines() if line.endswith(" s")]), 3, "a time for each")

    def test_the_first_failure_ends_it_with_its_line(self):
        done = self.follow("```bash", "true", "(exit 7)", "touch after", "```")
        self.assertEqual(done.returncode, 1)
        self.assertIn("README.md:3: ended with code 7: (exit 7)", done.stderr)
        self.assertFalse((self.folder / "after").exists())

    def test_files_are_written_to_the_letter(self):
        text = "auto s = \"it's $HOME `here`\\n\";  // 100 %s\n\n\tend"
        done = self.follow("Save it as `a/b.cpp`:", "```cpp", text, "```", "```bash", "cat a/b.cpp", "```")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.folder / "a/b.cpp").read_text(), text + "\n")

    def test_a_home_of_its_own(self):
        steps = tool.steps_of(page("```bash", "touch ~/mine", "```"))
        code = tool.follow(steps, self.folder, subprocess.DEVNULL)
        self.assertEqual(code, 0)
        self.assertTrue(Path(f"{self.folder}-home/mine").exists())


class ReadmeTest(unittest.TestCase):
    def setUp(self):
        self.page = (ROOT / "README.md").read_text()

    def test_it_can_be_followed(self):
        shown = [step.shown for step in tool.steps_of(self.page)]
        installed = next(at for at, step in enumerate(shown) if step.startswith("./dev install "))
        first_use = next(at for at, step in enumerate(shown) if step.startswith("lockstep "))
        self.assertEqual(shown[0], "./dev train")
        self.assertLess(installed, shown.index("write hello/CMakeLists.txt"))
        self.assertLess(installed, first_use)
        self.assertIn("write hello/hello.cpp", shown)


if __name__ == "__main__":
    unittest.main()
