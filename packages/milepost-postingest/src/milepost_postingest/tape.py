"""Tape worker: checks with ScoutAM, file by file, whether every file of an asset is on tape.

After a confirmation other systems delete their copies, so there is only one way to confirm: each
single file is archived and has the required copy on at least one volume. In every other case the
asset waits, or fails with an error for operators.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import milepost as mp
from milepost_postingest.answers import named, waits
from milepost_postingest.program import program_of
from milepost_postingest.scoutam.api import (
    AuthenticationFailed,
    FileState,
    NotThere,
    ScoutAM,
    ScoutAMError,
    Unavailable,
)

COPY = "3"
MISSES = 100
NEEDED = ("SCOUTAM_URL", "SCOUTAM_USERNAME", "SCOUTAM_PASSWORD", "MOUNT_ROOT")
SHORTEST = 60.0
WRONG_ROOT_AFTER = "10m"
"""Pause between two attempts for one asset while the mount root is wrong: these attempts count, and
people need time to correct it."""
LOG_EVERY_S = 60.0
"""While ScoutAM cannot be asked, each asset meets the same fault; the log has one line in so many
seconds."""

log = logging.getLogger(__name__)


class Tape:
    """A stage's handler, or with `check` a plain function of a payload: {"filePaths": [...]}, paths
    below `mount_root`.

    While ScoutAM does not answer, refuses the login or sends an unreadable answer, assets wait, and
    no attempt is counted. Files are checked in order; the check of an asset stops after `MISSES`
    missing files.
    """

    program = program_of("scoutam")

    def __init__(
        self,
        client: ScoutAM,
        mount_root: str,
        *,
        copy: str = COPY,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        if not mount_root.startswith("/") or not _fits(mount_root):
            raise mp.ConfigMistake(
                f"MOUNT_ROOT is {mount_root!r}; it must be the folder of the files as ScoutAM sees it, such as /scoutfs/ocfl"
            )
        if not copy:
            raise mp.ConfigMistake(
                "SCOUTAM_COPY is empty; give the number of the copy that must be on tape, such as 3"
            )
        self.client = client
        self.mount_root = mount_root.rstrip("/")
        self.copy = copy
        self._root_known = False
        self._ticks = ticks
        self._logged_at: float | None = None

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> Tape:
        """From SCOUTAM_URL, SCOUTAM_USERNAME, SCOUTAM_PASSWORD, MOUNT_ROOT and SCOUTAM_COPY ("3" if
        not given). Nothing is contacted before the first check."""
        missing = [name for name in NEEDED if not env.get(name)]
        if missing:
            raise mp.ConfigMistake(
                f"the tape stage needs {', '.join(missing)} in the environment; not set, or empty"
            )
        url, user, password, mount_root = (env[name] for name in NEEDED)
        try:
            client = ScoutAM(url, user, password)
        except mp.UsageError as error:
            raise mp.ConfigMistake(f"SCOUTAM_URL: {error}") from None
        return cls(client, mount_root, copy=env.get("SCOUTAM_COPY", COPY))

    def fault(self) -> str | None:
        """Why ScoutAM cannot be asked about the files now; None: it can."""
        try:
            known = self.client.knows(self.mount_root or "/")
        except ScoutAMError as error:
            return f"ScoutAM: {error}"
        return None if known else f"ScoutAM does not know MOUNT_ROOT, {self.mount_root or '/'}"

    def __enter__(self) -> Tape:
        self.client.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.client.__exit__(*error)

    def __call__(self, item: mp.Item) -> mp.Outcome:
        return self.check(item.payload)

    def check(self, payload: Any, absent: Callable[[str], mp.Outcome] = waits) -> mp.Outcome:
        """Done with {path: [volume, ...]} if all files are on tape; otherwise the obstacle.
        `absent` makes the outcome for files that are not on tape."""
        paths = file_paths(payload)
        if isinstance(paths, str):
            return mp.Reject(
                f'{paths}; the tape stage needs {{"filePaths": ["path below the mount root", ...]}}',
                category="WRONG_PAYLOAD",
            )
        try:
            return self._look(paths, absent)
        except AuthenticationFailed as error:
            return self._waits(f"ScoutAM refuses the login: {error}")
        except Unavailable as error:
            # Without a Retry-After, ScoutAM is asked again by the stage's schedule. A Retry-After
            # of 1 s is not meant for each asset.
            after = None if error.retry_after is None else max(SHORTEST, error.retry_after)
            return self._waits(f"ScoutAM does not answer: {error}", after)
        except ScoutAMError as error:
            return self._waits(str(error))

    def _waits(self, note: str, after: float | None = None) -> mp.NotYet:
        """The outcome for an asset about which ScoutAM cannot be asked; the log says so now and
        then."""
        now = self._ticks()
        if self._logged_at is None or now - self._logged_at >= LOG_EVERY_S:
            self._logged_at = now
            log.warning("assets wait until this is corrected: %s", note)
        return mp.NotYet(after=after, note=note)

    def _look(self, paths: list[str], absent: Callable[[str], mp.Outcome]) -> mp.Outcome:
        on_tape: dict[str, list[str]] = {}
        missing: list[str] = []
        unknown = 0
        for path in paths:
            state = self._state(path)
            wrong = None if state is None else self._wrong(path, state)
            if wrong is not None:
                return wrong
            volumes = () if state is None else state.volumes(self.copy)
            if volumes:
                on_tape[path] = list(volumes)
            else:
                missing.append(path)
                unknown += state is None
            if len(missing) >= MISSES:
                break
        if paths and len(on_tape) == len(paths) and not missing:
            return mp.Done(on_tape)
        if not self._root_known and not self.client.knows(self.mount_root or "/"):
            return mp.Retry(
                f"ScoutAM knows neither the asset's files nor MOUNT_ROOT itself, which is set to {self.mount_root or '/'}; "
                "check the path of the repository's folder in ScoutAM, and whether it is mounted there",
                category="WRONG_MOUNT_ROOT",
                after=WRONG_ROOT_AFTER,
                http_status=404,
            )
        self._root_known = True
        return absent(tape_note(paths, len(on_tape), missing, unknown))

    def _state(self, path: str) -> FileState | None:
        """The state of a file in ScoutAM; None if it does not know the file."""
        try:
            state = self.client.file(f"{self.mount_root}/{path}")
        except NotThere:
            return None
        self._root_known = True
        return state

    def _wrong(self, path: str, state: FileState) -> mp.Reject | None:
        """The rejection of a file that will never be on tape without an operator."""
        if state.is_damaged(self.copy):
            return mp.Reject(
                f"copy {self.copy} of {path} is marked as damaged; have the copy made again, then retry this asset",
                category="DAMAGED_COPY",
                details={
                    "path": path,
                    "copy": self.copy,
                    "volumes": list(state.copies.get(self.copy, ())),
                },
            )
        if state.never and not state.volumes(self.copy):
            return mp.Reject(
                f"{path} is marked not to be archived; remove the mark in ScoutAM, then retry this asset",
                category="NO_ARCHIVE",
                details={"path": path},
            )
        return None


def tape_note(paths: list[str], on_tape: int, missing: list[str], unknown: int) -> str:
    """How many files are on tape, and which are missing. It changes only with progress, and so does
    the history."""
    # Not all were checked: the files after the last one may be on tape too.
    at_least = "" if on_tape + len(missing) == len(paths) else "at least "
    strangers = f", {at_least}{unknown:,} not known to ScoutAM" if unknown else ""
    return f"{at_least}{on_tape:,} of {len(paths):,} files on tape{strangers}; missing: {named(paths, missing)}"


def file_paths(payload: Any) -> list[str] | str:
    """The paths of a payload, each once, in order; or what is wrong with it."""
    if isinstance(payload, str):
        try:
            payload = json.loads(payload)
        except (ValueError, RecursionError):
            return "the payload is text, but not JSON"
    if not isinstance(payload, dict) or not isinstance(payload.get("filePaths"), list):
        return "the payload has no list of filePaths"
    paths = payload["filePaths"]
    if not paths:
        return "the payload's filePaths are empty, which would prove nothing"
    for number, path in enumerate(paths, 1):
        if (
            not isinstance(path, str)
            or not _fits(path)
            or any(part in ("", ".", "..") for part in path.split("/"))
        ):
            return f"entry {number} of the payload's filePaths is not a path below the mount root"
    return list(dict.fromkeys(paths))


def _fits(path: str) -> bool:
    """Whether the path can be encoded. (JSON can contain halves of surrogate pairs.)"""
    return "\x00" not in path and not any("\ud800" <= character <= "\udfff" for character in path)
