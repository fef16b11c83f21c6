"""The `milepost` command: entry point, exit codes and error output. Modules are imported only when
a command needs them."""

from __future__ import annotations

import sys
from typing import Any

import click

from milepost.cli.standard_output import OutputError, discard_output, tell_output_errors_apart
from milepost.core.errors import MilepostError, UsageError
from milepost.net_errors import translated_net_errors


def main(args: list[str] | None = None) -> None:
    """Run the command line and exit: 0 success, 1 failure or refusal, 2 wrong usage."""
    from milepost.cli.commands import cli

    tell_output_errors_apart()
    sys.exit(answer(cli, args))


def answer(cli: click.Command, args: list[str] | None = None) -> int:
    """Run a command and return its exit code. An error becomes one line on standard error (with
    --json: one JSON object); a user's mistake never shows a traceback."""
    as_json = "--json" in (sys.argv[1:] if args is None else args)

    def say(error: Exception, message: str, code: int) -> int:
        return _say_json(error, message, code) if as_json else _say(message, code)

    try:
        with translated_net_errors():
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
    except UnicodeEncodeError:
        if all(map(_is_text, sys.argv[1:] if args is None else args)):
            raise
        return say(UsageError(), "an argument is not text in UTF-8", 2)
    except OutputError as error:
        discard_output()
        return say(error, str(error), 1)
    except BrokenPipeError:  # the reader has closed the pipe (milepost list | head)
        discard_output()
        return 1
    finally:
        _flush_what_remains()


def _flush_what_remains() -> None:
    """Write what a command printed before its error, or drop it: the error is what matters. (For a
    closed pipe click puts a wrapper around the output whose `flush` is silent; what is left in it
    would fail when Python flushes at exit, and some versions of Python say so.)"""
    stream = getattr(sys.stdout, "wrapped", sys.stdout)
    try:
        stream.flush()
    except OSError:
        discard_output()


def _is_text(argument: str) -> bool:
    """Whether an argument was given in UTF-8: the system's other bytes are halves of surrogate
    pairs."""
    return not any("\ud800" <= character <= "\udfff" for character in argument)


def _say(message: str, code: int) -> int:
    click.echo(
        _folded(f"milepost: {message}") if sys.stderr.isatty() else f"milepost: {message}", err=True
    )
    return code


def _say_json(error: Exception, message: str, code: int) -> int:
    """Print an error as JSON, in the one shape that all commands use."""
    import json

    click.echo(
        json.dumps(
            {"error": {"kind": type(error).__name__, "message": message}}, ensure_ascii=False
        ),
        err=True,
    )
    return code


def _folded(message: str) -> str:
    """Wrap a message for the terminal. A command at its end stays on one line, so that it can be
    copied."""
    import shutil
    import textwrap

    text, found, command = message.partition(": milepost ")
    width = max(40, shutil.get_terminal_size().columns)
    folded = textwrap.fill(
        text + (":" if found else ""), width, break_long_words=False, break_on_hyphens=False
    )
    return f"{folded}\n  milepost {command}" if found else folded
