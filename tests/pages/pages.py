"""Reads the code in README.md and docs/*.md: blocks of C++, shell and CMake.

    pages.py OUT.cpp    writes all fragments of C++ as functions of one file

A block with a comment <!-- not compiled: REASON --> or <!-- not run: REASON --> before it is left out; no other is.
"""

import importlib.machinery
import importlib.util
import re
import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MARKER = re.compile(r"<!-- not (compiled|run): \S.* -->$")
# A prompt, perhaps with the host's name, before a command.
PROMPT = re.compile(r"(?:\w*\$|#) (.*)")
COMMAND = re.compile(r" {4}((?:lockstep|\./dev) [^:].*)")


def load_reader():
    """Returns tools/follow_readme, which knows what a block is."""
    sys.dont_write_bytecode = True
    loader = importlib.machinery.SourceFileLoader("follow_readme", str(ROOT / "tools/follow_readme"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("follow_readme", loader))
    sys.modules["follow_readme"] = module
    loader.exec_module(module)
    return module


reader = load_reader()


def blocks(*languages):
    """Yields page and block for each block in one of these languages that no marker leaves out."""
    for page in PAGES:
        for block in reader.blocks_of(page.read_text()):
            if block.language in languages and not MARKER.match(block.before):
                yield page, block


def is_program(block):
    return "int main(" in block.text


def added_code(block):
    """Returns the code of a block; of a diff that after the change."""
    if block.language != "diff":
        return block.text
    return "".join(line[1:] for line in block.text.splitlines(keepends=True) if not line.startswith("-"))


def function_of(page, block):
    """Returns includes and the function that is a fragment."""
    lines = added_code(block).splitlines()
    includes = [line for line in lines if line.startswith("#include")]
    body = ["" if line in includes or line.strip() == "..." else line for line in lines]
    name = re.sub(r"\W", "_", f"{page.name}_{block.line}")
    return includes, [f"void {name}() {{", f'#line {block.line} "{page.relative_to(ROOT)}"', *body, "}"]


def fragments():
    """Returns a source file with every fragment of C++."""
    includes, functions = ['#include "tests/pages/prologue.h"'], []
    for page, block in blocks("cpp", "diff"):
        if not is_program(block):
            more, function = function_of(page, block)
            includes += more
            functions += function
    return "\n".join([*includes, *functions]) + "\n"


def commands_of(block):
    if block.language == "bash":
        return [step.command for step in reader.commands_of(block)]
    return [found.group(1) for found in map(PROMPT.match, block.text.splitlines()) if found]


def commands():
    """Yields where it stands and its text for each command in a block, fenced or indented."""
    for page, block in blocks("bash", "console"):
        for command in commands_of(block):
            yield f"{page.name}:{block.line}", command
    for page in PAGES:
        for number, line in enumerate(page.read_text().splitlines(), start=1):
            if found := COMMAND.fullmatch(line):
                yield f"{page.name}:{number}", found.group(1)


def words_of(command):
    """Yields the words of each simple command that a line of shell has."""
    words = []
    lexer = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    for word in lexer:
        if word and set(word) <= set(";&|()<>"):
            yield words
            words = []
        else:
            words.append(word)
    yield words


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(fragments())
