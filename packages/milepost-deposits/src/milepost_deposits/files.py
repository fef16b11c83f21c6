"""Files of a deposit: metadata and PDF in a folder or an S3 prefix, under names that cannot
collide."""

from __future__ import annotations

import errno
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from hashlib import md5, sha256
from pathlib import Path
from typing import Any

import msgspec

import milepost as mp
from milepost.blobs import Blobs, open_blobs
from milepost_deposits.controls import operators_fault, reason_of
from milepost_deposits.status_names import CONTENT, METADATA, result_in

_UNSAFE = re.compile(r"[^a-z0-9._-]+")
TAKES_NO_FILE, GIVES_NO_FILE, REMOVES_NO_FILE = STORE_FAULTS = (
    "takes no file",
    "gives no file",
    "removes no file",
)
"""The faults of a store; one of these is in the message of each StoreFault."""
PROBE = bytes(1 << 18)
"""Content of a file that is written and removed to find out whether the store takes files again."""
LATER = "5m"
"""When a DOI is looked at again whose file could not be stored."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


NO_CHECKSUM = "the submission service names no checksum of the PDF that was sent"


class StoreFault(OSError):
    """The store takes no file, or people have to correct what keeps it from giving or removing one:
    credentials, rights, a folder or a bucket. That is no fault of the DOI or of a partner."""


class StoredFile(msgspec.Struct, frozen=True):
    """One file in the store. `name` is its name there, `place` its path or s3:// address,
    `bitstream` the name that readers see."""

    name: str
    place: str
    bitstream: str
    size: int
    md5: str
    sha256: str


def readable(doi: str) -> str:
    """The DOI as a file name: 10.1002/abcd.20417 is 10.1002-abcd.20417. Two DOIs may have the same
    one."""
    return _UNSAFE.sub("-", doi).strip(".-")[:100] or "doi"


def file_name(doi: str, suffix: str) -> str:
    """The name of a DOI's file in the store: readable, and different for different DOIs (10.1/a/b
    and 10.1/a-b)."""
    return f"{readable(doi)}-{sha256(doi.encode()).hexdigest()[:32]}{suffix}"


class FileStore:
    """Files of deposits in a folder or under an S3 prefix."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._faulty = False

    @cached_property
    def _blobs(self) -> Blobs:
        # Opened at the first use: a process that only looks at routes needs no boto3.
        return open_blobs(self._place)

    def place_of(self, name: str) -> str:
        """Where a file is: its absolute path, or its s3:// address."""
        if self._place.startswith("s3://"):
            return f"{self._place.rstrip('/')}/{name}"
        return str(Path(self._place).absolute() / name)

    def write(self, doi: str, suffix: str, chunks: Iterable[bytes]) -> StoredFile:
        """Store a file of this DOI, chunk by chunk; it appears complete or not at all. One that was
        there is replaced. Raises StoreFault."""
        name = file_name(doi, suffix)
        size, sums = 0, (md5(usedforsecurity=False), sha256())

        def counted() -> Iterator[bytes]:
            nonlocal size
            for chunk in chunks:
                size += len(chunk)
                for one in sums:
                    one.update(chunk)
                yield chunk

        self._put(name, counted())
        return StoredFile(
            name,
            self.place_of(name),
            f"{readable(doi)}{suffix}",
            size,
            sums[0].hexdigest(),
            sums[1].hexdigest(),
        )

    def check(self) -> None:
        """Raise StoreFault if the last file could not be stored, and another one, which is written
        for this, cannot either: then no partner need be asked for more."""
        if self._faulty:
            name = f"probe-{secrets.token_hex(8)}"
            self._put(name, [PROBE])
            self.remove(name)

    def _put(self, name: str, chunks: Iterable[bytes]) -> None:
        try:
            self._blobs.write(name, chunks)
        except Exception as error:
            fault = operators_fault(error)
            if fault is None and not isinstance(error, OSError):
                raise
            self._faulty = True
            raise StoreFault(
                f"{self._place} {TAKES_NO_FILE}: {fault or reason_of(error)}"
            ) from error
        self._faulty = False

    def read(self, file: StoredFile) -> Iterator[bytes]:
        """A file's content in chunks, from the beginning at each call; FileNotFoundError if it is
        not there. Raises StoreFault."""
        with self._operators_faults(GIVES_NO_FILE):
            try:
                yield from self._blobs.read(file.name)
            except FileNotFoundError:
                if self._place.startswith("s3://") or Path(self._place).is_dir():
                    raise
                raise StoreFault(
                    f"{self._place} {GIVES_NO_FILE}: this folder is not there; mount it, or correct its name"
                ) from None

    def check_readable(self, file: StoredFile) -> None:
        """Raise the error that reading this file has."""
        for _ in self.read(file):
            break

    @contextmanager
    def _operators_faults(self, does: str) -> Iterator[None]:
        """Raise StoreFault for errors that people have to put right."""
        try:
            yield
        except Exception as error:
            fault = operators_fault(error)
            if fault is None or isinstance(error, StoreFault):
                raise
            raise StoreFault(f"{self._place} {does}: {fault}") from error

    def read_json(self, file: StoredFile) -> Any:
        return msgspec.json.decode(b"".join(self.read(file)))

    def find(self, doi: str, suffix: str) -> bytes | None:
        """The content of a small file of this DOI; None if it is not there. Raises StoreFault."""
        try:
            with self._operators_faults(GIVES_NO_FILE):
                return b"".join(self._blobs.read(file_name(doi, suffix)))
        except FileNotFoundError:
            return None

    def remove_of(self, doi: str, suffix: str) -> None:
        """Remove a file of this DOI, if it is there. Raises StoreFault."""
        self.remove(file_name(doi, suffix))

    def remove(self, name: str) -> None:
        """Remove the file of this name, if it is there. Raises StoreFault."""
        with self._operators_faults(REMOVES_NO_FILE):
            self._blobs.remove(name)


class Deposit(msgspec.Struct, frozen=True):
    """A DOI whose metadata and PDF are in the file store."""

    doi: str
    """Normalised: lower case, without a prefix such as https://doi.org/."""
    title: str
    metadata: StoredFile
    """JSON in the form that the settings ask for (`metadata_form`)."""
    content: StoredFile
    """The PDF; `md5` is what DSpace answers after an upload."""


def deposit_of(item: mp.Item) -> Deposit | None:
    """The deposit of an item at the submit stage, from the results of the stages before. None: one
    of them has stored no file, since an operator has skipped or confirmed it."""
    metadata, content = (
        result_in({"results": item.results}, stage) for stage in (METADATA, CONTENT)
    )
    try:
        files = [msgspec.convert(result.get("file"), StoredFile) for result in (metadata, content)]
    except msgspec.ValidationError:
        return None
    return Deposit(item.key, str(metadata.get("title") or ""), *files)


def accepts_file(value: Any, payload: Any) -> bool:
    """Does this answer from outside end a stage that stores a file? The next stage needs the file,
    unless the DOI is deposited by hand."""
    if isinstance(value, dict) and (
        value.get("by_hand") is True or isinstance(value.get("file"), dict)
    ):
        return True
    raise ValueError(
        "the next stage needs the stored file; note a deposit by hand with 'milepost deposits deposited'"
    )


def accepts_deposit(value: Any, payload: Any) -> bool:
    """Does this answer from outside say that the deposit is in DSpace? It names the handle, which
    is None where DSpace still reviews the item. A file's checksum must be that of the PDF in
    `payload`, the output of the content stage; raises ValueError where it is not. The submission
    service must name that file with its checksum."""
    if not isinstance(value, dict) or not isinstance(value.get("handle", 0), str | None):
        raise ValueError('give the handle of the item: {"handle": "1721.1/400778"}')
    sent = payload.get("file") if isinstance(payload, dict) else None
    if isinstance(sent, dict):
        checked = False
        for file in value.get("files") or ():
            named = file.get("name") in (None, sent.get("bitstream"))
            checksum = file.get("checksum")
            if not named or not checksum or str(file.get("algorithm")).upper() != "MD5":
                continue
            if checksum.lower() != sent.get("md5"):
                raise ValueError(
                    f"the checksum of {file.get('name')} in DSpace is {checksum}; the PDF that was sent has {sent.get('md5')}"
                )
            checked = True
        if value.get("via") == "dss" and not checked:
            raise ValueError(NO_CHECKSUM)
    return True


def waits_for_store(files: FileStore, fetch: Callable[[], mp.Outcome]) -> mp.Outcome:
    """The outcome of `fetch`, which asks a partner and stores a file. Where the store takes none,
    the DOI waits: neither the DOI nor the partner is at fault, and the tries of all DOIs would be
    used up. Once one file was refused, no partner is asked until the store takes files again."""
    try:
        files.check()
        return fetch()
    except StoreFault as fault:
        return mp.NotYet(after=LATER, note=str(fault))
    except OSError as error:
        # A file comes by way of a temporary one.
        if error.errno not in _FULL:
            raise
        return mp.NotYet(
            after=LATER, note=f"the folder for temporary files {TAKES_NO_FILE}: {error.strerror}"
        )
