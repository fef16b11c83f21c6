"""Permissions of a ledger's files: private unless a setting says otherwise, existing ones as they
are; and what doctor says of them."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import milepost as mp
from milepost.composition import open_context, open_ledger, restore_ledger
from milepost.core.errors import ConfigMistake
from milepost.core.values.file_modes import folder_mode, read_mode
from milepost.engine.health.doctor import doctor
from milepost.ledgers.sqlite.file.liveness import Liveness
from milepost.ledgers.sqlite.file.permissions import is_readable_by_all


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=["umask 000", "umask 022", "umask 077"])
def any_umask(request: pytest.FixtureRequest) -> Iterator[None]:
    with umask(request.param):
        yield


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that every user may enter."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def modes(folder: Path) -> dict[str, str]:
    """The mode of each file and folder, by its place in the folder."""
    return {
        file.relative_to(folder)
        .as_posix()
        .replace(os.uname().nodename, "HOST"): f"{stat.S_IMODE(file.stat().st_mode):04o}"
        for file in sorted(folder.rglob("*"))
    }


def use(path: Path, mode: str | None = None) -> dict[str, str]:
    """Work with a ledger as processes do; the modes of what is in its folder meanwhile."""
    ledger, blobs = open_ledger(f"sqlite:///{path}", mode=None if mode is None else read_mode(mode))
    ledger.sign_on("worker")
    assert ledger.write("t", "x", 1)
    if not (path.parent / f"{path.name}-blobs").exists():
        blobs.write("list/a", [b"content"])
    blobs.write("list/b", [b"content"])
    found = modes(path.parent)
    ledger.close()
    return found


def beside(path: Path, file_mode: str, folder_mode: str) -> dict[str, str]:
    lock = f"m.db-workers/worker@{Liveness(str(path))._machine}.lock".replace(
        os.uname().nodename, "HOST"
    )
    files = ["m.db", "m.db-wal", "m.db-shm", "m.db-blobs/list/a", "m.db-blobs/list/b", lock]
    return dict.fromkeys(files, file_mode) | dict.fromkeys(
        ["m.db-workers", "m.db-blobs", "m.db-blobs/list"], folder_mode
    )


@pytest.mark.usefixtures("any_umask")
def test_a_new_ledger_is_readable_for_its_owner_alone(tmp_path: Path) -> None:
    assert use(tmp_path / "m.db") == beside(tmp_path / "m.db", "0600", "0700")


@pytest.mark.usefixtures("any_umask")
@pytest.mark.parametrize(("mode", "folders"), [("0660", "0770"), ("0640", "0750"), ("644", "0755")])
def test_a_setting_gives_new_files_another_mode(tmp_path: Path, mode: str, folders: str) -> None:
    assert use(tmp_path / "m.db", mode) == beside(tmp_path / "m.db", f"{int(mode, 8):04o}", folders)


@pytest.mark.parametrize("setting", [None, "0660"])
def test_an_existing_ledger_keeps_its_modes(tmp_path: Path, setting: str | None) -> None:
    use(tmp_path / "m.db", "0644")
    assert use(tmp_path / "m.db") == beside(tmp_path / "m.db", "0644", "0755"), (
        "what is new beside it follows the ledger file"
    )
    found = use(tmp_path / "m.db", setting)
    assert (found["m.db"], found["m.db-wal"], found["m.db-blobs"]) == ("0644", "0644", "0755")


@pytest.mark.usefixtures("any_umask")
@pytest.mark.parametrize(
    ("setting", "file_mode", "folders"), [(None, "0600", "0700"), ("0640", "0640", "0750")]
)
def test_a_backup_is_private_unless_a_setting_says_otherwise(
    tmp_path: Path, setting: str | None, file_mode: str, folders: str
) -> None:
    use(tmp_path / "m.db", "0644")
    backups = tmp_path / "backups"
    backups.mkdir()
    ledger, _ = open_ledger(
        f"sqlite:///{tmp_path / 'm.db'}", mode=None if setting is None else read_mode(setting)
    )
    ledger.backup(backups / "copy.db", False, lambda done, whole: None)
    ledger.close()
    files = dict.fromkeys(["copy.db", "copy.db-blobs/list/a", "copy.db-blobs/list/b"], file_mode)
    assert modes(backups) == files | dict.fromkeys(["copy.db-blobs", "copy.db-blobs/list"], folders)


def test_a_restored_ledger_is_private_or_has_the_mode_of_the_one_that_it_replaces(
    tmp_path: Path,
) -> None:
    use(tmp_path / "m.db", "0644")
    (tmp_path / "there").mkdir()
    url = f"sqlite:///{tmp_path / 'there' / 'm.db'}"
    for mode in ("0600", "0660"):
        report = restore_ledger(
            tmp_path / "m.db",
            url,
            overwrite=True,
            force=False,
            on_progress=lambda done, whole: None,
        )
        found = modes(tmp_path / "there")
        assert (found["m.db"], found["m.db-blobs/list/a"]) == (mode, mode)
        (tmp_path / "there" / "m.db").chmod(0o660)
    assert report.set_aside is not None


@pytest.mark.parametrize(
    "text", ["0777", "0400", "0066", "rw-------", "600 ", "", "0o600", "06000"]
)
def test_a_mode_that_locks_the_owner_out_or_makes_files_executable_is_refused(
    tmp_path: Path, text: str
) -> None:
    with pytest.raises(ConfigMistake, match='write octal text such as "0600", "0640" or "0660"'):
        mp.open(f"sqlite:///{tmp_path}/m.db", mode=text)
    assert not list(tmp_path.iterdir())


def test_the_option_of_open_is_the_mode_of_the_file(tmp_path: Path) -> None:
    with mp.open(f"sqlite:///{tmp_path}/m.db", mode="0640"):
        assert modes(tmp_path)["m.db"] == "0640"


def test_folders_may_be_entered_by_those_who_may_read() -> None:
    assert {folder_mode(mode) for mode in (0o600, 0o640, 0o660, 0o664)} == {
        0o700,
        0o750,
        0o770,
        0o775,
    }


def findings(path: Path) -> list[tuple[str, str]]:
    ctx = open_context(f"sqlite:///{path}", [], check=False)
    try:
        return [
            (finding.level, finding.what)
            for finding in doctor(ctx).findings
            if finding.about == "ledger"
        ]
    finally:
        ctx.ledger.close()


def test_doctor_names_a_ledger_that_every_user_may_read(shared_folder: Path) -> None:
    path = shared_folder / "m.db"
    use(path, "0644")
    if not is_readable_by_all(str(path)):
        pytest.skip("others cannot enter the folder of temporary files")
    assert (
        "warn",
        f"every user of this machine may read the ledger {path} (mode 0644), with all inputs and results",
    ) in findings(path)
    shared_folder.chmod(0o750)
    assert findings(path) == []
    shared_folder.chmod(0o755)
    path.chmod(0o640)
    assert findings(path) == []


@contextmanager
def as_another_user() -> Iterator[None]:
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_doctor_fails_for_a_user_who_may_not_write_the_ledger(shared_folder: Path) -> None:
    path = shared_folder / "m.db"
    use(path, "0644")
    ledger, _ = open_ledger(
        f"sqlite:///{path}"
    )  # a process of the owner runs, so that -wal and -shm exist
    ledger.sign_on("worker")
    ledger.write("t", "y", 1)
    with as_another_user():
        found = findings(path)
    ledger.close()
    [(level, what)] = [finding for finding in found if "may not write" in finding[1]]
    assert level == "bad"
    names = f"{path}, {path}-wal, {path}-shm, {path}-workers, {shared_folder}"
    assert what.endswith(
        f"may not write {names}; the ledger belongs to root: nothing can be recorded"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_private_ledger_of_another_user_says_so(shared_folder: Path) -> None:
    path = shared_folder / "m.db"
    use(path)
    with (
        as_another_user(),
        pytest.raises(
            mp.LedgerError,
            match=r"m\.db: cannot be opened; .* may this user read and write there\?",
        ),
    ):
        open_ledger(f"sqlite:///{path}")
