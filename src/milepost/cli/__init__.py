"""The command line: a thin door. Each group of commands is a small file; nothing heavy is imported before it is needed."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from milepost.core.errors import MilepostError, UsageError


def main(args: list[str] | None = None) -> None:
    """The entry point. Exit codes: 0 good, 1 something failed or was refused, 2 wrong usage."""
    from milepost.cli.commands import cli

    sys.exit(answer(cli, args))


def answer(cli: click.Command, args: list[str] | None = None) -> int:
    """Run a command and say what went wrong in one plain sentence (with --json: as one JSON object, also on standard error);
    a person's mistake never shows a traceback."""
    as_json = "--json" in (sys.argv[1:] if args is None else args)

    def say(error: Exception, message: str, code: int) -> int:
        return _say_json(error, message, code) if as_json else _say(message, code)

    try:
        answer: Any = cli.main(args=args, prog_name="milepost", standalone_mode=False)
        sys.stdout.flush()
        return answer if isinstance(answer, int) else 0
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.UsageError as error:
        if as_json:
            return _say_json(error, error.format_message(), 2)
        error.show()
        return 2
    except click.ClickException as error:
        return say(error, error.format_message(), 1)
    except UsageError as error:
        return say(error, str(error), 2)
    except MilepostError as error:
        return say(error, str(error), 1)
    except (KeyboardInterrupt, click.Abort):
        return _say("stopped", 130)
    except BrokenPipeError:
        # Whoever read our output has had enough (milepost list | head). Nothing more may be written, at exit neither.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _say(message: str, code: int) -> int:
    click.echo(_folded(f"milepost: {message}") if sys.stderr.isatty() else f"milepost: {message}", err=True)
    return code


def _say_json(error: Exception, message: str, code: int) -> int:
    """The one shape of an error for programs."""
    import json

    click.echo(json.dumps({"error": {"kind": type(error).__name__, "message": message}}, ensure_ascii=False), err=True)
    return code


def _folded(message: str) -> str:
    """Folded between words for a terminal; a command at the end stands on a line of its own, whole, to be copied."""
    import shutil
    import textwrap

    text, found, command = message.partition(": milepost ")
    width = max(40, shutil.get_terminal_size().columns)
    folded = textwrap.fill(text + (":" if found else ""), width, break_long_words=False, break_on_hyphens=False)
    return f"{folded}\n  milepost {command}" if found else folded
