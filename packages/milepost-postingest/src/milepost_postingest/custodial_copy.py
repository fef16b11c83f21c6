"""Confirmer of the Custodial Copy: an asset is confirmed when the OCFL repository holds it,
complete and committed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import milepost as mp
from milepost_postingest.answers import waits
from milepost_postingest.dialects import as_json
from milepost_postingest.ocfl.object import Damaged, Empty, File, ObjectFound, ObjectMissing, Staged
from milepost_postingest.ocfl.repository import Repository, Unreachable
from milepost_postingest.program import program_of

ROOT, LAYOUT, FIXITY = "OCFL_REPO_DIR", "OCFL_LAYOUT", "OCFL_FIXITY"
EXPECTED = 'expected {"preservationSystemId": "…"}'
SETTLED_S = 900.0
log = logging.getLogger(__name__)
_SAID = {"1": True, "true": True, "yes": True, "": False, "0": False, "false": False, "no": False}


class CustodialCopy:
    """A stage's handler; `check` is the same for a standalone confirmer. Thread-safe.

    `root` and `layout` are as for `Repository`; with `fixity` every file is read and its digest
    computed, which on storage with tape behind it may recall each file. The repository is opened by
    the first check, so that a route can be imported where the repository is not mounted.

    While the repository cannot be read at all, assets wait, and no attempt is counted. An object
    that looks damaged and was changed less than `settled` seconds ago may still be being written:
    it is checked again before the damage is reported.
    """

    program = program_of("ocfl")

    def __init__(
        self,
        root: str | Path,
        *,
        layout: str | Mapping[str, Any] | None = None,
        fixity: bool = False,
        settled: float = SETTLED_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.root, self.layout, self.fixity = root, layout, fixity
        self.settled, self._clock = settled, clock
        self._opened: Repository | None = None
        self._opening = threading.Lock()

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> CustodialCopy:
        """From OCFL_REPO_DIR, and if they are set OCFL_LAYOUT and OCFL_FIXITY (1: read every
        file)."""
        root = env.get(ROOT, "")
        if not root:
            raise mp.ConfigMistake(f"{ROOT} is not set; expected the folder of the OCFL repository")
        said = env.get(FIXITY, "")
        fixity = _SAID.get(said.strip().lower())
        if fixity is None:
            raise mp.ConfigMistake(f"{FIXITY} is {said!r}; expected 1 or 0")
        return cls(root, layout=env.get(LAYOUT) or None, fixity=fixity)

    def ready(self) -> None:
        """Warn, before any asset is checked, if the repository cannot be read: all assets would
        wait."""
        fault = self.fault()
        if fault is not None:
            log.warning("assets wait until this is corrected: %s", fault)

    def fault(self) -> str | None:
        """Why the repository cannot be read now; None: it can."""
        try:
            self._repository()
        except (mp.ConfigMistake, Unreachable) as error:
            return str(error)
        return None

    def __enter__(self) -> CustodialCopy:
        return self

    def __exit__(self, *_: object) -> None:
        """No-op: there is nothing to close."""

    def __call__(self, item: mp.Item) -> mp.Outcome:
        return self.check(item.payload)

    def recheck(self, payload: Any, absent: Callable[[str], mp.Outcome] = waits) -> mp.Outcome:
        """As `check`, and the output names the files of all versions: a later version may have
        replaced a file that was confirmed."""
        return self.check(payload, absent, every_version=True)

    def check(
        self,
        payload: Any,
        absent: Callable[[str], mp.Outcome] = waits,
        *,
        every_version: bool = False,
    ) -> mp.Outcome:
        """The outcome for the asset that this payload names; a repository that cannot be read is a
        Retry. `absent` makes the outcome for a missing object, or one without files. With
        `every_version` the output names the files of older versions, too."""
        object_id = _object_id(payload)
        if object_id is None:
            return mp.Reject(
                f"the payload does not name an asset; {EXPECTED}",
                category="WRONG_PAYLOAD",
                details={"payload": payload},
            )
        try:
            answer = self._repository().look(object_id, fixity=self.fixity)
        except Unreachable as error:
            return (
                mp.NotYet(note=str(error))
                if error.whole
                else mp.Retry(str(error), category="UNREACHABLE")
            )
        except mp.ConfigMistake as mistake:
            return mp.NotYet(note=str(mistake))
        except mp.MalformedInput as error:
            return mp.Reject(
                f"{error}; {EXPECTED}", category="WRONG_PAYLOAD", details={"payload": payload}
            )
        match answer:
            case ObjectFound():
                return _confirmed(
                    object_id,
                    answer,
                    [*answer.files, *answer.older] if every_version else answer.files,
                )
            case ObjectMissing():
                return absent("not in the repository yet")
            case Staged():
                return mp.NotYet(note="it has staged changes")
            case Empty():
                return absent("its head version has no files")
            case Damaged():
                if self._touched_lately(answer):
                    return mp.NotYet(note=f"it is being written, or damaged: {answer.what}")
                return mp.Reject(
                    f"{answer.what} ({answer.where}); have the object repaired, then retry the item",
                    category="DAMAGED",
                    details={
                        "objectId": object_id,
                        "what": answer.what,
                        "where": answer.where,
                        "code": answer.code,
                    },
                )

    def _touched_lately(self, damaged: Damaged) -> bool:
        try:
            return self._repository().age(damaged.object_root, self._clock()) < self.settled
        except OSError:
            return False

    def _repository(self) -> Repository:
        if self._opened is None:
            with self._opening:
                if self._opened is None:
                    self._opened = Repository(self.root, layout=self.layout)
        return self._opened


def _object_id(payload: Any) -> str | None:
    try:
        named = as_json(payload)
    except UnicodeEncodeError:
        return None
    object_id = named.get("preservationSystemId") if isinstance(named, dict) else None
    return (
        object_id
        if isinstance(object_id, str) and object_id.strip() and object_id.isprintable()
        else None
    )


def _confirmed(object_id: str, found: ObjectFound, files: Sequence[File]) -> mp.Done:
    sizes = {file.path: file.bytes for file in files}
    paths = list(sizes)
    output = {
        "filePaths": paths,
        "digests": {file.path: f"{found.algorithm}:{file.digest}" for file in files},
        "sizes": sizes,
        "version": found.version,
        "objectId": object_id,
        "fixity": found.fixity,
        "bytes": sum(sizes.values()),
    }
    return mp.Done(output=output, payload={"filePaths": paths})
