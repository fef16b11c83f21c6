"""Process liveness on one machine: each process holds an OS lock on a file beside the ledger as
long as it lives.

The operating system releases the lock when the process ends, for whatever reason. A process that
can take the lock has proof of death.
"""

from __future__ import annotations

import errno
import fcntl
import os
import platform
from pathlib import Path

from milepost.core.errors import NO_DESCRIPTOR, LedgerFull, LedgerReadOnly, TooManyOpenFiles
from milepost.core.values.file_modes import PRIVATE
from milepost.ledgers.sqlite.errors import too_many_open_files
from milepost.ledgers.sqlite.file.permissions import make_folder


class Liveness:
    def __init__(self, ledger_path: str, mode: int = PRIVATE) -> None:
        self._mode = mode
        self.folder = Path(ledger_path + "-workers")
        self._held: dict[str, int] = {}
        # A shared folder may hold other machines' files, whose locks mean nothing here.
        self._machine = platform.node().replace("/", "_")

    def _path(self, holder: str) -> Path:
        return self.folder / f"{holder}@{self._machine}.lock"

    def sign_on(self, holder: str) -> None:
        if holder in self._held:
            return
        try:
            self._lock(holder)
        except OSError as error:
            if error.errno in NO_DESCRIPTOR:
                raise TooManyOpenFiles(too_many_open_files(self.folder)) from error
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise LedgerFull(
                    f"{self.folder}: the disk is full, so this process cannot create its lock file ({error})"
                ) from error
            raise LedgerReadOnly(
                f"{self.folder}: this process cannot create its lock file there ({error})"
            ) from error

    def _lock(self, holder: str) -> None:
        make_folder(self.folder, self._mode)
        # Locked under a temporary name, then renamed: other processes never see it unlocked.
        hidden = self.folder / f".{holder}"
        descriptor = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
        os.fchmod(descriptor, self._mode)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        hidden.rename(self._path(holder))
        self._held[holder] = descriptor

    def sign_off(self, holder: str) -> None:
        descriptor = self._held.pop(holder, None)
        if descriptor is not None:
            self._path(holder).unlink(missing_ok=True)
            os.close(descriptor)

    def dead_workers(self) -> list[str]:
        """Holders on this machine whose lock can be taken: they are dead. Their files stay until
        `remove_lock_files`."""
        return [holder for holder, alive in self._others() if not alive]

    def neighbours(self) -> int:
        """How many other processes use this ledger."""
        return sum(alive for _, alive in self._others())

    def _others(self) -> list[tuple[str, bool]]:
        try:
            return self._look_at_others()
        except OSError as error:
            if error.errno in NO_DESCRIPTOR:
                raise TooManyOpenFiles(too_many_open_files(self.folder)) from error
            raise

    def _look_at_others(self) -> list[tuple[str, bool]]:
        """The other holders on this machine, and whether each is alive."""
        others = []
        ending = f"@{self._machine}.lock"
        # (`glob` would take a folder that cannot be read for an empty one.)
        names = os.listdir(self.folder) if self.folder.exists() else []
        for name in sorted(name for name in names if name.endswith(ending)):
            path, holder = self.folder / name, name.removesuffix(ending)
            if holder in self._held:
                continue
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            except PermissionError:
                others.append((holder, True))  # of another user; nothing proves that it is dead
                continue
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                others.append((holder, False))
            except OSError:
                others.append((holder, True))
            finally:
                os.close(descriptor)
        return others

    def remove_lock_files(self, holders: list[str]) -> None:
        """Remove the files of dead holders, after their leases were taken back."""
        for holder in holders:
            self._path(holder).unlink(missing_ok=True)

    def close(self) -> None:
        for holder in list(self._held):
            self.sign_off(holder)
