"""The text file: every line once, in order, after crashes and with several processes."""

from __future__ import annotations

from pathlib import Path

import pytest

import milepost as mp
from milepost import ports


@pytest.fixture
def route() -> mp.Route:
    parcels = mp.Route("parcels", key="id")

    @parcels.stage("weigh")
    def weigh(item: mp.Item) -> mp.Outcome:
        return mp.Done({"grams": 340})

    @parcels.stage("stamp")
    def stamp(item: mp.Item) -> mp.Outcome:
        return mp.Done()

    return parcels


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"mirrored:///{tmp_path}/parcels.db"


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    return tmp_path / "parcels.db-history.txt"


def run(url: str, route: mp.Route, *keys: str) -> None:
    with mp.open(url, routes=[route]) as ledger:
        ledger.submit("parcels", *({"id": key} for key in keys))
        ledger.run(until_idle=True)


def fields(mirror: Path) -> list[list[str]]:
    return [line.split("\t") for line in mirror.read_text().splitlines()]


def test_the_file_has_every_line_in_the_order_of_the_feed(
    url: str, route: mp.Route, mirror: Path
) -> None:
    run(url, route, "P-1", "P-2")
    with mp.open(url, routes=[route]) as other, mp.open(url, routes=[route]) as ledger:
        for key in ("P-3", "P-4"):
            ledger.submit("parcels", {"id": key})
            other.submit("parcels", {"id": f"{key}b"})
        entries = ledger.context.ledger.feed(0, 1000)
    assert [int(line[0]) for line in fields(mirror)] == [entry.seq for entry in entries]
    of_one_item = [line[2:] for line in fields(mirror) if line[3] == "P-1"]
    assert of_one_item == [
        ["parcels", "P-1", "accepted", "QUEUED", "weigh"],
        ["parcels", "P-1", "advanced", "QUEUED", "stamp"],
        ["parcels", "P-1", "completed", "COMPLETED", "stamp"],
    ]
    assert mirror.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("lost", [0, 1, 20, 10_000])
def test_what_a_crash_has_left_out_is_added_at_the_next_start(
    url: str, route: mp.Route, mirror: Path, lost: int
) -> None:
    run(url, route, *(f"P-{n}" for n in range(100)))
    whole = mirror.read_bytes()
    mirror.write_bytes(whole[: len(whole) - lost])
    with mp.open(url, routes=[route]):
        assert mirror.read_bytes() == whole


def test_a_missing_ledger_is_not_made_by_reading(url: str, mirror: Path) -> None:
    with pytest.raises(ports.LedgerMissing):
        ports.open_ledger(url, make=False)
    with pytest.raises(ports.ConfigMistake):
        ports.open_ledger("mirrored://parcels.db")
    assert list(mirror.parent.iterdir()) == []


def test_it_cannot_be_backed_up_as_it_declares(url: str, route: mp.Route, tmp_path: Path) -> None:
    with mp.open(url, routes=[route]) as ledger:
        assert "backup" in ledger.context.ledger.missing_capabilities
        with pytest.raises(ports.LedgerError, match="cannot be backed up"):
            ledger.backup(tmp_path / "backup.db")


def test_a_forgotten_key_leaves_the_file(url: str, route: mp.Route, mirror: Path) -> None:
    run(url, route, "P-1", "P-2")
    before = fields(mirror)
    ledger, _ = ports.open_ledger(url)
    [item] = ledger.get([("parcels", "P-1")])
    assert isinstance(item, ports.Item)
    asked = ports.ForgetRequest("parcels", "P-1", "a name", item.row.entered_at + 1)
    assert ledger.forget(asked).lines == 3
    ledger.close()
    forgotten = [
        [*line[:3], "(forgotten)" if line[3] == "P-1" else line[3], *line[4:]] for line in before
    ]
    assert fields(mirror) == forgotten
