"""Backup and restore of a SQLite ledger: the file with its blobs, checked before it gets its name.

A backup is itself a ledger: FILE, and FILE-blobs beside it. It is a snapshot, whatever is written
during the copy: the copy reads in one transaction, so that it never starts over.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from urllib.parse import quote

from msgspec import Struct

from milepost.core.errors import LedgerBusy, LedgerDamaged, LedgerError, UsageError
from milepost.core.history import link
from milepost.core.values.file_modes import PRIVATE
from milepost.ledgers.sqlite import documents
from milepost.ledgers.sqlite.errors import BUSY, primary_code, translated_errors
from milepost.ledgers.sqlite.file import schema
from milepost.ledgers.sqlite.file.liveness import Liveness
from milepost.ledgers.sqlite.file.permissions import make_folder, mode_of, new_file
from milepost.ledgers.sqlite.file.store import blobs_folder
from milepost.ledgers.sqlite.rows.names import read_epoch
from milepost.ports.documents import EPOCH, raised_epoch
from milepost.ports.upkeep import BackupReport, Progress, RestoreReport

PAGES = 512
"""Pages copied between two progress reports."""
CHUNK = 1 << 20
BESIDE = ("-wal", "-shm", "-journal")
"""Files of SQLite that belong to the ledger file beside them."""


class Contents(Struct, frozen=True):
    """Contents of a checked ledger file; equal before and after a copy."""

    items: int
    seals: int
    last_seq: int
    schema: int
    broken: list[str]
    """Keys of items whose history does not end at the head in their row."""


def back_up(
    path: str, target: Path, *, overwrite: bool, on_progress: Progress, mode: int = PRIVATE
) -> BackupReport:
    """Copy the ledger in `path` as of now, with its blobs, to `target`, while other processes may
    write. The copy gets its name after it is checked and on disk; an interrupted copy leaves
    nothing under that name."""
    _check_target(target, overwrite)
    aside, aside_blobs = _unfinished(target), _unfinished(blobs_folder(target))
    try:
        with translated_errors(path), closing(_connect(path)) as source:
            # From here on this connection sees a snapshot. Blobs are written before the rows that
            # name them, so all of them exist.
            source.execute("BEGIN")
            pages = (
                source.execute("PRAGMA page_count").fetchone()[0]
                * source.execute("PRAGMA page_size").fetchone()[0]
            )
            source.execute("SELECT count(*) FROM sqlite_master").fetchone()
            sizes = _blob_sizes(blobs_folder(path))
            whole = pages + sum(sizes.values())
            blobs, blob_bytes = _copy_blobs(
                blobs_folder(path), aside_blobs, sizes, lambda done: on_progress(done, whole), mode
            )
            new_file(aside, mode).close()
            with closing(sqlite3.connect(aside, isolation_level=None)) as copy:

                def report(_status: int, remaining: int, total: int) -> None:
                    on_progress(blob_bytes + (total - remaining) * pages // max(1, total), whole)

                with translated_errors(str(target)):
                    source.backup(copy, pages=PAGES, progress=report)
                    copy.execute("PRAGMA journal_mode = DELETE").fetchone()
        contents = examine(aside)
        _sync(aside)
        _put_in_place(aside_blobs, blobs_folder(target))
        os.replace(aside, target)
        _sync(target.parent)
    except OSError as error:
        raise LedgerError(
            f"cannot write {target}: {error.strerror}; nothing was left there; give another path"
        ) from error
    finally:
        _remove(aside)
        _remove(aside_blobs)
    held = (contents.items, contents.seals, contents.last_seq)
    return BackupReport(
        str(target), target.stat().st_size, blobs, blob_bytes, *held, contents.broken
    )


def restore(
    source: Path,
    path: str,
    *,
    overwrite: bool,
    force: bool = False,
    on_progress: Progress,
    mode: int | None = None,
) -> RestoreReport:
    """Replace the ledger in `path` by the backup `source`. An existing ledger is renamed, never
    removed. Refuses, without changing anything, while a process uses that ledger, beside a leftover
    SQLite log, and for a damaged backup (`force` accepts items with a broken history). The files
    have the mode of the ledger that they replace, else `mode`, else they are private."""
    target = Path(path)
    file_mode = mode_of(target) or mode or PRIVATE
    _check_source(source, target)
    _check_unused(target, overwrite)
    contents = examine(source)
    if contents.broken and not force:
        raise LedgerDamaged(
            f"{source}: the history of {len(contents.broken):,} items does not end at the head in their row, among them"
            f" {contents.broken[0]}: another program has changed them. Use another backup, or give --force"
        )
    aside, aside_blobs = _unfinished(target), _unfinished(blobs_folder(target))
    kept: Path | None = None
    try:
        sizes = _blob_sizes(blobs_folder(source))
        size = source.stat().st_size
        whole = size + sum(sizes.values())
        _copy_file(source, aside, lambda done: on_progress(done, whole), file_mode)
        blobs, _ = _copy_blobs(
            blobs_folder(source),
            aside_blobs,
            sizes,
            lambda done: on_progress(size + done, whole),
            file_mode,
        )
        if examine(aside) != contents:
            raise LedgerDamaged(
                f"the copy of {source} differs from it: the disk or another process has changed it; nothing was restored"
            )
        _raise_epoch(aside, round(time.time() * 1000), f"restored from {source.name}")
        _check_unused(target, overwrite)
        if target.exists() or blobs_folder(target).exists():
            kept = _set_aside(target)
        _put_in_place(aside_blobs, blobs_folder(target))
        os.replace(aside, target)
        _sync(target.parent)
    except OSError as error:
        raise LedgerError(f"cannot write {target}: {error.strerror}") from error
    finally:
        _remove(aside)
        _remove(aside_blobs)
    examine(target)
    held = (contents.items, contents.seals, contents.last_seq)
    return RestoreReport(
        path, str(source), blobs, *held, contents.broken, None if kept is None else str(kept)
    )


def _raise_epoch(path: Path, now: int, why: str) -> None:
    """Lines that are written from now on are of another epoch: they may have the versions of lines
    written since the backup was made."""
    with (
        translated_errors(str(path)),
        closing(sqlite3.connect(path, isolation_level=None)) as connection,
    ):
        connection.execute("BEGIN IMMEDIATE")
        epoch = raised_epoch(read_epoch(connection), now, why)
        documents.write(connection, EPOCH, "", epoch, None)
        connection.execute("COMMIT")
    _sync(path)


def examine(path: Path) -> Contents:
    """Check a ledger file that no process uses: it must be a ledger, and SQLite must find it
    intact. Also checks that each item's history ends at the head in its row."""
    address = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"
    with (
        translated_errors(str(path)),
        closing(sqlite3.connect(address, uri=True, isolation_level=None)) as connection,
    ):
        version = schema.check(connection, str(path))
        if not version:
            raise LedgerDamaged(f"{path} is empty: it is not the backup of a ledger")
        [found] = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            raise LedgerDamaged(f"{path} is damaged: {found}; use another backup")
        items, seals, last_seq = connection.execute(
            "SELECT (SELECT count(*) FROM item), (SELECT count(*) FROM seal), (SELECT coalesce(max(seq), 0) FROM history)"
        ).fetchone()
        return Contents(items, seals, last_seq, version, list(_wrong_heads(connection)))


def _wrong_heads(connection: sqlite3.Connection) -> Iterator[str]:
    """Keys of items whose last line is not the one that their row names."""
    query = """
        SELECT i.key, i.head, h.previous, h.body FROM item i
        LEFT JOIN history h ON h.seq = (SELECT max(seq) FROM history WHERE item = i.id)
    """
    for key, head, previous, body in connection.execute(query):
        if (
            not isinstance(body, bytes)
            or not isinstance(previous, bytes)
            or link(previous, body) != head
        ):
            yield key


def _connect(path: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"file:{quote(os.path.abspath(path))}?mode=rw", uri=True, timeout=60, isolation_level=None
    )


# Checks -------------------------------------------------------------------------------------------
def _check_target(target: Path, overwrite: bool) -> None:
    if target.is_dir():
        raise UsageError(
            f"{target} is a folder; name a file in it, such as {target / 'milepost-backup.db'}"
        )
    if not target.parent.is_dir():
        raise UsageError(f"the folder {target.parent} does not exist; create it with mkdir -p")
    there = [place for place in (target, blobs_folder(target)) if place.exists()]
    if there and not overwrite:
        raise UsageError(f"{there[0]} already exists; give another name, or --overwrite")
    for suffix in BESIDE:
        if Path(f"{target}{suffix}").exists():
            raise UsageError(
                f"{target}{suffix} exists: a process uses {target} as a ledger, or died while using it; give another name"
            )


def _check_source(source: Path, target: Path) -> None:
    if not source.is_file():
        raise UsageError(f"there is no backup {source}; give the file that 'milepost backup' wrote")
    if target.exists() and source.samefile(target):
        raise UsageError(f"{source} is the ledger itself; give a backup of it")
    log = Path(f"{source}-wal")
    if log.exists() and log.stat().st_size:
        raise LedgerError(
            f"{log} holds changes that are not in {source}: a process uses it as a ledger, or died while using it. {_FOLD}"
        )


_FOLD = (
    "Stop that process; then 'milepost --ledger sqlite:///FILE status' moves the log into the file"
)


def _check_unused(target: Path, overwrite: bool) -> None:
    at_work = Liveness(str(target)).neighbours()
    if at_work:
        raise LedgerBusy(
            f"{at_work} process{'es are' if at_work > 1 else ' is'} using {target}; stop them first"
        )
    for suffix in BESIDE:
        beside = Path(f"{target}{suffix}")
        if beside.exists():
            raise LedgerError(
                f"{beside} exists: a process has {target} open, or died while using it. The log does not belong to a restored file. {_FOLD};"
                f" if {target} is damaged, move both away"
            )
    if (target.exists() or blobs_folder(target).exists()) and not overwrite:
        raise UsageError(
            f"{target} already exists; --overwrite renames it and puts the backup in its place"
        )
    if target.exists():
        _check_free(target)


def _check_free(target: Path) -> None:
    """Refuse a file that another process has open. A damaged one may be replaced."""
    with closing(sqlite3.connect(target, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("ROLLBACK")
        except sqlite3.DatabaseError as error:
            if primary_code(error) in BUSY:
                raise LedgerBusy(f"a process has {target} open; stop it first") from None


# Files --------------------------------------------------------------------------------------------
def _unfinished(place: Path) -> Path:
    return place.with_name(f".unfinished-{place.name}-{secrets.token_hex(4)}")


def _set_aside(target: Path) -> Path:
    """Rename the existing ledger with its blobs."""
    kept = Path(f"{target}.before-restore-{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(2)}")
    if blobs_folder(target).exists():
        blobs_folder(target).rename(blobs_folder(kept))
    if target.exists():
        target.rename(kept)
    return kept


def _put_in_place(made: Path, place: Path) -> None:
    """Give a folder of blobs its name, replacing an existing one."""
    if place.exists():
        old = _unfinished(place)
        place.rename(old)
        shutil.rmtree(old)
    if made.exists():
        made.rename(place)


def _blob_sizes(folder: Path) -> dict[Path, int]:
    """Every blob with its size; unfinished ones are left out."""
    sizes: dict[Path, int] = {}
    for file in sorted(_entries(folder)):
        # A blob may be removed at any moment, with the row that names it.
        with suppress(FileNotFoundError):
            if file.is_file() and not file.name.startswith("."):
                sizes[file] = file.stat().st_size
    return sizes


def _entries(folder: Path) -> Iterator[Path]:
    """All files and folders below a folder. One that cannot be read is an error (`rglob` would
    leave its files out without a word)."""

    def raise_error(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    for root, folders, files in os.walk(folder, onerror=raise_error):
        yield from (Path(root, name) for name in [*folders, *files])


def _copy_blobs(
    folder: Path, to: Path, sizes: dict[Path, int], on_progress: Callable[[int], None], mode: int
) -> tuple[int, int]:
    """Copy the blobs; returns how many, and their bytes."""
    n = done = 0
    for file in sizes:
        place = to / file.relative_to(folder)
        make_folder(place.parent, mode)
        with suppress(FileNotFoundError):
            done += _copy_file(file, place, partial(_report_copied, on_progress, done), mode)
            n += 1
    for made in [to, *_entries(to)] if to.is_dir() else ():
        if made.is_dir():
            _sync(made)
    return n, done


def _report_copied(on_progress: Callable[[int], None], before: int, of_file: int) -> None:
    on_progress(before + of_file)


def _copy_file(source: Path, target: Path, on_progress: Callable[[int], None], mode: int) -> int:
    """Copy and sync one file; returns its bytes."""
    done = 0
    with source.open("rb") as reading, new_file(target, mode) as writing:
        while chunk := reading.read(CHUNK):
            writing.write(chunk)
            done += len(chunk)
            on_progress(done)
        writing.flush()
        os.fsync(writing.fileno())
    return done


def _sync(place: Path) -> None:
    handle = os.open(place, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove(place: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place, ignore_errors=True)
    else:
        place.unlink(missing_ok=True)
