"""An OCFL repository on disk: checks whether an object is there, complete and committed.

Other systems delete their own copies after this answer. So `ObjectFound` means that everything that
was checked agreed; a doubtful object is `Damaged`; and a repository that cannot be read at all is
an error, never `ObjectMissing`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import msgspec

import milepost as mp
from milepost_postingest.ocfl.folder import NOT_SO, OPEN_FOLDER, ObjectFolder
from milepost_postingest.ocfl.inventory import Unsound
from milepost_postingest.ocfl.layouts import KNOWN, Layout, full_name, layout_of
from milepost_postingest.ocfl.object import Answer, Damaged, ObjectFound, ObjectMissing, inspect

LAYOUT_FILE = "ocfl_layout.json"
PAUSE_S = 0.2
"""Pause between two checks of an object that may be being written: a writer needs far less to
replace an inventory."""

_ROOTS = {f"0=ocfl_{version}": version for version in ("1.0", "1.1")}


class Unreachable(mp.MilepostError):
    """The repository cannot be read now, and nothing is known about the object. `whole`: no object
    can be read, so the cause is not this object."""

    def __init__(self, message: str, *, whole: bool = False) -> None:
        super().__init__(message)
        self.whole = whole


class Repository:
    """The storage root at this path, opened once; thread-safe.

    `layout` is for roots that do not say theirs: a name ("0004-hashed-n-tuple-storage-layout", or
    "0004"), or a mapping as it would stand in the layout's config.json. Raises ConfigMistake if
    this is not a root that can be read; Unreachable if it cannot be read just now.
    """

    def __init__(
        self,
        root: str | Path,
        *,
        layout: str | Mapping[str, Any] | None = None,
        pause: Callable[[], None] = lambda: time.sleep(PAUSE_S),
    ) -> None:
        self.root = os.path.abspath(root)
        self._pause = pause
        try:
            declaration = _declaration(self.root)
            self.spec = _ROOTS[declaration]
            self._declaration = os.path.join(self.root, declaration)
            self.layout, self._place = _layout(self.root, layout)
        except OSError as error:
            self._give_up(error, whole=True)

    def look(self, object_id: str, *, fixity: bool = False) -> Answer:
        """The state of this object; with `fixity`, every file is read. Raises Unreachable, and
        MalformedInput for an id that no object here can have."""
        place = self._place(object_id)
        try:
            answer = self._look(object_id, place, fixity)
            if isinstance(answer, Damaged):
                # It may be being written just now, or the file system may have been unmounted.
                self._pause()
                answer = self._look(object_id, place, fixity)
            if not isinstance(answer, ObjectFound):
                self._check_mounted()
        except OSError as error:
            self._give_up(error, whole=not os.path.lexists(self._declaration))
        return answer

    def age(self, place: str, now: float) -> float:
        """Seconds since the object's folder at this place was last changed."""
        return now - os.stat(f"{self.root}/{place}").st_mtime

    def _look(self, object_id: str, place: str, fixity: bool) -> Answer:
        path = f"{self.root}/{place}"
        try:
            folder = os.open(path, OPEN_FOLDER)
        except FileNotFoundError:
            return ObjectMissing(place)
        except OSError as error:
            if error.errno not in NOT_SO:
                raise
            return Damaged(place, f"the object's place is not a folder ({error.strerror})", place)
        try:
            return inspect(ObjectFolder(folder, path), object_id, place, fixity)
        except Unsound as unsound:
            return Damaged(place, str(unsound), f"{place}/{unsound.where}", unsound.code)
        finally:
            os.close(folder)

    def _check_mounted(self) -> None:
        try:
            os.lstat(self._declaration)
        except FileNotFoundError:
            raise Unreachable(
                f"{self._declaration} does not exist any more; is the repository mounted?",
                whole=True,
            ) from None

    def _give_up(self, error: OSError, *, whole: bool) -> NoReturn:
        where = error.filename if isinstance(error.filename, str) else self.root
        raise Unreachable(
            f"the repository {self.root} cannot be read: {error.strerror or error} ({where}); check its mount and permissions",
            whole=whole,
        ) from error


# The storage root ---------------------------------------------------------------------------------


def _declaration(root: str) -> str:
    expected = (
        f"expected an OCFL storage root with the file {' or '.join(_ROOTS)} in it; is it mounted?"
    )
    try:
        found = [name for name in os.listdir(root) if name.startswith("0=")]
    except (FileNotFoundError, NotADirectoryError):
        raise mp.ConfigMistake(f"{root} is not a folder; {expected}") from None
    if len(found) != 1 or found[0] not in _ROOTS:
        raise mp.ConfigMistake(
            f"{root} has {', '.join(sorted(found)) or 'no declaration (0=ocfl_…)'}; {expected}"
        )
    return found[0]


def _layout(root: str, given: str | Mapping[str, Any] | None) -> tuple[str, Layout]:
    """The layout that the root declares; `given` is for a root that does not, and must not
    contradict it."""
    path = os.path.join(root, LAYOUT_FILE)
    said = _json(path)
    name, where = (None, path) if said is None else (said.get("extension"), path)
    wanted = given if given is None or isinstance(given, str) else given.get("extensionName")
    if name is None and wanted is not None:
        name, where = wanted, "layout"
    if name is None:
        raise mp.ConfigMistake(
            f"{path} does not say which layout the objects have; give layout=, one of {', '.join(KNOWN)}"
        )
    known = full_name(name) if isinstance(name, str) else None
    if known is None:
        raise mp.ConfigMistake(
            f"{where}: {name!r} is not a layout known here; expected one of {', '.join(KNOWN)}"
        )
    if isinstance(wanted, str) and (full_name(wanted) or wanted) != known:
        raise mp.ConfigMistake(
            f"{path} says that the layout is {known}, and layout= says {wanted}; leave layout= out"
        )
    where = os.path.join(root, "extensions", known, "config.json")
    config = _json(where)
    if config is None:
        config, where = (
            ({}, where)
            if given is None or isinstance(given, str)
            else ({**given, "extensionName": known}, "layout")
        )
    try:
        return known, layout_of(known, config)
    except mp.ConfigMistake as mistake:
        raise mp.ConfigMistake(f"{where}: {mistake}") from mistake


def _json(path: str) -> dict[str, Any] | None:
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise mp.ConfigMistake(f"{path} is not a JSON object ({error})") from error
