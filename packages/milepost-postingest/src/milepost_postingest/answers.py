"""Judgement of answers: which ones confirm a stage. Other systems delete their own copies after a
confirmation, so a doubtful answer confirms nothing."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from typing import Any

import milepost as mp
from milepost_postingest.dialects import as_json

SHOWN = 10
LONGEST_NAME = 120

_NO = re.compile(
    r"\W*((pending|queued|waiting|wait|processing|in[ -]progress|started|scheduled|partial|partially|incomplete|unknown|undefined|none|null|nil|"
    r"nan|n/a|no|not|never|false|missing|absent|err|denied|lost|cannot|can't|could not)\b|"
    r"error|exception|traceback|fail|damag|corrupt|reject|refus|invalid|unavailable|unreachable|timeout|timed out|retry|cancel|abort)",
    re.IGNORECASE,
)
"""Beginnings of texts that say no, or not yet."""
_FLAGS = (
    "archdone",
    "done",
    "ok",
    "success",
    "confirmed",
    "complete",
    "completed",
    "found",
    "exists",
    "ingested",
)
_TEXTS = ("status", "state", "result", "outcome")
_ERRORS = ("error", "errors", "exception", "failure")


def accepts_of(dialect: str, stage: str) -> Callable[[Any, Any], bool]:
    """A function that judges a stage's answers. It raises ValueError, with the reason, for an
    answer that does not confirm.

    A stage that was given `filePaths` is confirmed by an answer that covers each of them. In
    today's dialect an answer must also have the format that today's confirmers write, where that is
    known.
    """
    shape = {"CC": _check_paths, "TC": _check_volumes}.get(stage) if dialect == "today" else None

    def accepts(value: Any, payload: Any) -> bool:
        answer = as_json(value)
        denied = _denial(answer)
        if denied is not None:
            raise ValueError(denied)
        asked = asked_for(payload)
        if asked:
            _check_covered(answer, asked, bare=dialect == "seed")
        if shape is not None:
            shape(answer)
        return True

    return accepts


def next_payload(output: Any) -> Any:
    """Payload of the next stage: of an answer with `filePaths`, only these. Digests and sizes are
    for the record."""
    if isinstance(output, dict) and "filePaths" in output and len(output) > 1:
        return {"filePaths": output["filePaths"]}
    return output


def asked_for(payload: Any) -> list[str]:
    """The files that a stage was given, each once."""
    given = as_json(payload)
    paths = given.get("filePaths") if isinstance(given, dict) else None
    return (
        list(dict.fromkeys(path for path in paths if isinstance(path, str)))
        if isinstance(paths, list)
        else []
    )


def named(all_paths: Iterable[str], some: Iterable[str]) -> str:
    """Some of an asset's files in a few words: relative to their common folder, the first ten."""
    folder = _common_folder(list(all_paths))
    names = [path.removeprefix(folder) for path in some]
    shown = ", ".join(map(_shown_name, names[:SHOWN]))
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return f"{shown}{more}" + (f" (in {folder.rstrip('/')})" if folder else "")


def _shown_name(name: str) -> str:
    """A file's name, cut to size; in quotes if it could be taken for words of the sentence."""
    short = name if len(name) <= LONGEST_NAME else f"…{name[1 - LONGEST_NAME :]}"
    return f"'{short}'" if short == "none" or "," in short else short


def _common_folder(paths: list[str]) -> str:
    """With its '/' at the end; empty if there is none."""
    first, last = min(paths, default=""), max(paths, default="")
    folder = first[: first.rfind("/") + 1]
    while folder and not last.startswith(folder):
        folder = folder[: folder.rfind("/", 0, len(folder) - 1) + 1]
    return folder


def _denial(answer: Any) -> str | None:
    """Why this answer says no, or says nothing; None: it may be a yes."""
    if isinstance(answer, str):
        denies = not answer.strip() or _NO.match(answer.strip()) is not None
    elif isinstance(answer, bool) or answer is None:
        denies = answer is not True
    elif isinstance(answer, (int, float)):
        denies = not (answer > 0 and math.isfinite(answer))
    elif isinstance(answer, dict):
        denies = not answer or any(answer.get(name) is False for name in _FLAGS)
        denies = denies or any(
            isinstance(answer.get(name), str) and _denial(answer[name]) is not None
            for name in _TEXTS
        )
        denies = denies or any(
            isinstance(answer.get(name), (str, dict, bool)) and answer[name] for name in _ERRORS
        )
    else:
        denies = not answer or any(_denial(one) is not None for one in answer)
    return f"{_excerpt(answer)} confirms nothing: it says no, or not yet" if denies else None


def _check_covered(answer: Any, asked: list[str], *, bare: bool) -> None:
    """Raise ValueError unless the answer has every file. `bare`: true for a file means that it is
    there, without its place."""
    if isinstance(answer, dict) and isinstance(answer.get("filePaths"), list):
        there = {path for path in answer["filePaths"] if isinstance(path, str)}
    elif isinstance(answer, dict):
        there = {path for path in asked if path in answer and _holds_file(answer[path], bare)}
    else:
        raise ValueError(
            f"{_excerpt(answer)} confirms nothing: it names none of the {len(asked):,} files that were asked for"
        )
    missing = [path for path in asked if path not in there]
    if missing:
        raise ValueError(
            f"it covers {len(asked) - len(missing):,} of {len(asked):,} files; missing: {named(asked, missing)}"
        )


def _holds_file(said: Any, bare: bool) -> bool:
    """Whether this says where one file is."""
    if isinstance(said, dict):
        return _denial(said) is None and _holds_file(said.get("volumes"), bare)
    if isinstance(said, list):
        return bool(said) and all(isinstance(one, str) and _denial(one) is None for one in said)
    if isinstance(said, str):
        return _denial(said) is None
    return bare and said is True


def _check_paths(answer: Any) -> None:
    paths = answer.get("filePaths") if isinstance(answer, dict) else None
    if not (
        isinstance(paths, list) and paths and all(isinstance(path, str) and path for path in paths)
    ):
        raise ValueError(
            f'{_excerpt(answer)} confirms nothing: a result of CC is {{"filePaths": [PATH, …]}}'
        )


def _check_volumes(answer: Any) -> None:
    wrong = not isinstance(answer, dict) or not all(
        isinstance(volumes, list) and _holds_file(volumes, False) for volumes in answer.values()
    )
    if wrong:
        raise ValueError(
            f"{_excerpt(answer)} confirms nothing: a result of TC is {{PATH: [VOLUME, …], …}}"
        )


def _excerpt(answer: Any) -> str:
    text = json.dumps(answer, ensure_ascii=False, default=str)
    return text if len(text) <= 100 else f"{text[:99]}…"


def waits(note: str) -> mp.Outcome:
    """The asset waits for the next check."""
    return mp.NotYet(note=note)
