"""Runs the samples of a page, in order, in a folder of its own.

    ```python               run; blocks of one page build on each other
    ```python no-run        shown only
    ```python file=NAME     written to NAME, and run (any other language with file=NAME is only written)
    ```text output          what the python block before it printed
    ```console              each `$ ` line is run by a shell; the lines under it are what it answered
    ```console exit=1       the same, but the last command ends with 1
    ```console no-run       shown only

In what is shown, `...` stands for any text. Where lines break, how wide gaps are, moments, ids and
short measured times do not matter (see LOOSE). A command with nothing under it may answer anything.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.cli.command_processes import command_processes

FENCE = re.compile(
    r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```\s*$",
    re.DOTALL | re.MULTILINE,
)
BIN = Path(sys.executable).parent


class Block(NamedTuple):
    line: int
    language: str
    words: frozenset[str]
    options: dict[str, str]
    body: str


class SampleError(AssertionError):
    """A sample does not do what the page says."""


def blocks(text: str) -> Iterator[Block]:
    for match in FENCE.finditer(text):
        language, *rest = match["info"].split() or [""]
        options = dict(word.split("=", 1) for word in rest if "=" in word)
        line = text.count("\n", 0, match.start()) + 2
        yield Block(
            line,
            language,
            frozenset(word for word in rest if "=" not in word),
            options,
            textwrap.dedent(match["body"]),
        )


class Page:
    """One page while its samples are run."""

    def __init__(
        self,
        path: Path,
        folder: Path,
        env: dict[str, str] | None = None,
        ports: Mapping[int, int] | None = None,
    ) -> None:
        """`ports`: in place of the ports that the page names, which another program may have
        taken."""
        self.path, self.folder, self.env, self.ports = path, folder, env or {}, ports or {}
        self.ran = 0
        self._printed: str | None = None
        # A module of its own, so that the annotations of classes in samples can be resolved.
        self._names: dict[str, Any] = {"__name__": "__sample__"}

    def run(self) -> int:
        """Run every sample; how many there were."""
        text = self.path.read_text(encoding="utf-8")
        for shown, port in self.ports.items():
            text = re.sub(rf"\b{shown}\b", str(port), text)
        with contextlib.chdir(self.folder):
            for block in blocks(text):
                self._run(block)
        return self.ran

    def _run(self, block: Block) -> None:
        if "no-run" in block.words:
            return
        if "file" in block.options:
            Path(block.options["file"]).write_text(block.body, encoding="utf-8")
        if block.language == "python":
            self._python(block)
        elif block.language == "console":
            self._console(block)
        elif block.language == "text" and "output" in block.words:
            if self._printed is None:
                raise SampleError(
                    f"{self.path.name}:{block.line}: no python block stands before this output"
                )
            compare(block.body, self._printed, f"{self.path.name}:{block.line}")

    def _python(self, block: Block) -> None:
        # Blank lines before the code, so that a traceback names the page's own line.
        code = compile(
            "\n" * (block.line - 1) + block.body, str(self.path), "exec", dont_inherit=True
        )
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(code, self._names)
        self._printed = out.getvalue()
        self.ran += 1

    def _console(self, block: Block) -> None:
        commands = list(_commands(block))
        if not commands:
            raise SampleError(f"{self.path.name}:{block.line}: a console block without a '$ ' line")
        for place, (line, command, shown) in enumerate(commands):
            where = f"{self.path.name}:{line}: {command}"
            last = place == len(commands) - 1
            wanted = int(block.options.get("exit", "0")) if last else 0
            done = shell(command, self.folder, self.env)
            if done.returncode != wanted:
                raise SampleError(
                    f"{where}\nended with {done.returncode}, not {wanted}:\n{done.stdout}"
                )
            if shown.strip():
                compare(shown, done.stdout, where)
            self.ran += 1


def _commands(block: Block) -> Iterator[tuple[int, str, str]]:
    """The commands of a console block, each with its line and what is shown under it. A `\\` at the end joins the next line."""
    at, command, shown = 0, "", []
    for number, text in enumerate(block.body.splitlines(), block.line):
        if text.startswith("$ "):
            if command:
                yield at, command, "\n".join(shown)
            at, command, shown = number, text[2:], []
        elif command.endswith("\\"):
            command = f"{command[:-1].rstrip()} {text.strip()}"
        else:
            shown.append(text)
    if command:
        yield at, command, "\n".join(shown)


PLAIN, QUOTED, SPECIAL = (
    re.compile(r"milepost\s"),
    re.compile(r"'[^']*'|\"[^\"$`\\]*\""),
    re.compile(r"[^\w\s=.,:/@+-]"),
)
"""A call of milepost in which nothing is left for a shell to do."""


def shell(
    command: str, folder: Path, more: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A command as a user types it, with its two outputs together, as a terminal shows them."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MILEPOST", "COLUMNS", "FORCE_COLOR"))
    }
    env |= {
        "PATH": f"{BIN}{os.pathsep}{env.get('PATH', '')}",
        "PYTHONIOENCODING": "utf-8",
        "TZ": "UTC",
        "NO_COLOR": "1",
    }
    env |= more or {}
    if PLAIN.match(command) and not SPECIAL.search(QUOTED.sub("", command)):
        answer = command_processes().run(
            shlex.split(command)[1:], folder, env, timeout=60, together=True
        )
        return subprocess.CompletedProcess(command, answer.code, answer.out)
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=60,
    )


# What differs from run to run is not compared: moments, short measured times, ids, names of
# processes.
LOOSE = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"), "TIME"),
    (re.compile(r"(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d"), "TIME"),
    (re.compile(r"\b[\w.-]+-\d+-[0-9a-f]{6}\b"), "PROCESS"),
    (re.compile(r"\b[0-9a-f]{12,}(?:-[0-9a-f]+)?\b"), "ID"),
    (re.compile(r"\b\d+(?:\.\d+)? (?:ms|s)(?: ago)?(?![\w/])"), "SPAN"),
    (re.compile(r"now \(TIME\)"), "SPAN (TIME)"),
    (re.compile(r" (?:in|after) SPAN"), ""),
)


def compare(shown: str, answered: str, where: str) -> None:
    """Is this what was answered? `...` stands for anything. Where lines break does not matter."""
    wanted, got = _plain(shown), _plain(answered)
    if (
        re.fullmatch(".*?".join(re.escape(part.strip()) for part in wanted.split("...")), got)
        is None
    ):
        # The pattern is made of stripped parts: the gaps beside the dots belong to them.
        raise SampleError(
            f"{where}\nshown:\n{textwrap.indent(shown, '    ')}\nanswered:\n{textwrap.indent(answered, '    ')}"
        )


def _plain(text: str) -> str:
    words = " ".join(text.replace("─", " ").split())
    for pattern, name in LOOSE:
        words = pattern.sub(name, words)
    return words
