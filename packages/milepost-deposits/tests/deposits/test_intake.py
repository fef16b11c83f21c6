"""Intake: every list is taken in once, archived beside its report, and a bad one stops no other."""

from __future__ import annotations

import json
import os
import signal
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.deposits.deposits_scene import DepositsScene

import milepost as mp
from milepost_aws.aws_model import AwsModel
from milepost_deposits.intake import take_in_lists


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[DepositsScene]:
    with DepositsScene(tmp_path) as found:
        yield found


@contextmanager
def alarm() -> Iterator[None]:
    """Fails instead of hanging."""

    def rings(*_: object) -> None:
        raise AssertionError("not done after 60 s")

    before = signal.signal(signal.SIGALRM, rings)
    signal.alarm(60)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_every_form_of_a_doi_is_one_item_and_bad_lines_are_named(scene: DepositsScene) -> None:
    scene.deliver(
        "list.csv",
        "\ufeffDOI\r\n\r\n10.1/x  \r\nhttps://doi.org/10.1/X\r\ndoi:10.1/x\r\n10.1/x,foo\r\nnot a doi\r\n",
    )
    [taken] = scene.take_in().taken
    assert scene.keys() == ["10.1/x"]
    assert taken.report.counts | {"new": 1, "repeated": 3, "malformed": 1} == taken.report.counts
    [bad] = taken.report.malformed
    assert (bad.line, bad.text) == (7, "not a doi")
    assert "not a DOI" in bad.reason


def test_a_byte_order_mark_and_line_ends_of_windows_leave_no_trace(scene: DepositsScene) -> None:
    scene.deliver("list.csv", b"\xef\xbb\xbf10.1/a\r\n10.1/b\r\n")
    scene.take_in()
    assert scene.keys() == ["10.1/a", "10.1/b"]


@pytest.mark.parametrize(
    "name", ["LIST.CSV", "list.Txt", "deep/down/list.csv", "with space (1).csv"]
)
def test_lists_of_any_name_are_taken(scene: DepositsScene, name: str) -> None:
    scene.deliver(name, "Title;DOI\nFoam;10.1/a\n")
    report = scene.take_in()
    assert report.new == 1
    assert scene.keys() == ["10.1/a"]
    assert [one.rpartition("-")[2] for one in scene.archived()] == [name.rpartition("/")[2]]
    assert not (scene.inbox / name).exists()


def test_quotes_and_line_breaks_in_other_columns_do_no_harm(scene: DepositsScene) -> None:
    scene.deliver("list.csv", 'title,doi\n"Foam, ""wet"",\nand sand","10.1/a"\nplain,10.1/b\n')
    scene.take_in()
    assert scene.keys() == ["10.1/a", "10.1/b"]


def test_what_is_archived_or_in_quarantine_is_not_read(scene: DepositsScene) -> None:
    scene.deliver("archived/old.csv", "10.1/a\n")
    scene.deliver("quarantine/bad.csv", "10.1/b\n")
    scene.deliver(".hidden.csv", "10.1/c\n")
    assert scene.take_in().taken == []
    assert scene.keys() == []


def test_two_lists_that_share_a_doi_make_one_item(scene: DepositsScene) -> None:
    scene.deliver("a.csv", "10.1/a\n10.1/b\n")
    scene.deliver("b.csv", "10.1/B\n10.1/c\n")
    assert scene.take_in().new == 3
    assert scene.keys() == ["10.1/a", "10.1/b", "10.1/c"]


def test_a_list_of_the_same_name_replaces_no_archive(scene: DepositsScene) -> None:
    for doi in ("10.1/a", "10.1/b", "10.1/c"):
        scene.deliver("list.csv", f"{doi}\n")
        scene.take_in()
    archived = scene.archived()
    assert len(archived) == 3
    assert {(scene.inbox / "archived" / name).read_text() for name in archived} == {
        "10.1/a\n",
        "10.1/b\n",
        "10.1/c\n",
    }


def test_the_report_is_beside_the_archived_list(scene: DepositsScene) -> None:
    scene.deliver("list.csv", "10.1/a\nbroken\n")
    [taken] = scene.take_in().taken
    report = json.loads((scene.inbox / f"{taken.archived}.report.json").read_text())
    assert report["counts"]["new"] == 1
    assert [bad["line"] for bad in report["malformed"]] == [2]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"title,year\nFoam,2020\n", "no column"),
        (b"\x1f\x8b\x08zipped", "compressed"),
        (b"", "is empty"),
        (b" \r\n\r\n", "is empty"),
    ],
)
def test_a_bad_file_is_quarantined_with_its_reason_and_stops_no_other(
    scene: DepositsScene, content: bytes, reason: str
) -> None:
    scene.deliver("a-bad.csv", content)
    scene.deliver("b-good.csv", "10.1/a\n")
    report = scene.take_in()
    assert report.new == 1
    [refused] = report.refused
    assert reason in refused.reason
    assert (scene.inbox / refused.quarantined).read_bytes() == content
    assert reason in (scene.inbox / f"{refused.quarantined}.reason.txt").read_text()
    assert scene.take_in().refused == []


def test_a_file_that_is_still_written_is_left(tmp_path: Path) -> None:
    with DepositsScene(tmp_path, inbox_quiet="10s") as scene:
        scene.deliver("list.csv", "10.1/a\n", age_s=0)
        assert scene.take_in().growing == ["list.csv"]
        scene.deliver("list.csv", "10.1/a\n", age_s=20)
        assert scene.take_in().new == 1


def test_a_file_that_is_replaced_while_it_is_read_stays_for_the_next_time(
    scene: DepositsScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.deliver("list.csv", "10.1/a\n")
    submit = scene.ledger.submit_list

    def replaced(*args: object, **more: object) -> mp.ListReport:
        report = submit(*args, **more)  # type: ignore[arg-type]
        scene.deliver("list.csv", "10.1/a\n10.1/b\n")
        return report

    monkeypatch.setattr(scene.ledger, "submit_list", replaced)
    assert scene.take_in().taken[0].archived == ""
    monkeypatch.undo()
    scene.take_in()
    assert scene.keys() == ["10.1/a", "10.1/b"]
    assert len(scene.archived()) == 1


def test_other_files_are_ignored_and_named(scene: DepositsScene) -> None:
    scene.deliver("list.ods", b"PK")
    assert scene.take_in().ignored == ["list.ods"]
    assert (scene.inbox / "list.ods").exists()


def test_a_missing_inbox_changes_nothing_and_says_so(tmp_path: Path) -> None:
    with (
        DepositsScene(tmp_path, inbox=str(tmp_path / "nowhere")) as scene,
        pytest.raises(mp.MilepostError, match="nowhere"),
    ):
        scene.take_in()


def test_a_ledger_that_is_not_available_leaves_the_list(
    scene: DepositsScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.deliver("list.csv", "10.1/a\n")

    def unavailable(*_: object, **__: object) -> mp.ListReport:
        raise mp.LedgerError("the disk is gone")

    monkeypatch.setattr(scene.ledger, "submit_list", unavailable)
    with pytest.raises(mp.LedgerError):
        take_in_lists(scene.ledger, scene.settings)
    assert (scene.inbox / "list.csv").exists()


def test_what_vanished_from_the_master_list_is_reported(scene: DepositsScene) -> None:
    scene.deliver("1.csv", "10.1/a\n10.1/b\n")
    scene.take_in()
    scene.deliver("2.csv", "10.1/b\n")
    [taken] = scene.take_in().taken
    assert taken.report.vanished == ["10.1/a"]


def test_lists_under_an_s3_prefix(
    tmp_path: Path, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import boto3

    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
    }.items():
        monkeypatch.setenv(name, value)
    s3 = boto3.client("s3", endpoint_url=endpoint)
    with DepositsScene(tmp_path, inbox="s3://lists/wiley") as scene:
        with pytest.raises(mp.MilepostError, match="lists"):
            scene.take_in()
        s3.create_bucket(
            Bucket="lists", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"}
        )
        assert scene.take_in().taken == []
        s3.put_object(
            Bucket="lists", Key="wiley/march.CSV", Body=b"\xef\xbb\xbfDOI\r\n10.1/A\r\n10.1/b\r\n"
        )
        s3.put_object(Bucket="lists", Key="wiley/bad.csv", Body=b"title\nFoam\n")
        s3.put_object(Bucket="lists", Key="elsewhere/other.csv", Body=b"10.1/z\n")
        report = scene.take_in()
        assert scene.keys() == ["10.1/a", "10.1/b"]
        keys = [one["Key"] for one in s3.list_objects_v2(Bucket="lists")["Contents"]]
        [taken], [refused] = report.taken, report.refused
        assert sorted(keys) == sorted(
            [
                "elsewhere/other.csv",
                f"wiley/{taken.archived}",
                f"wiley/{taken.archived}.report.json",
                f"wiley/{refused.quarantined}",
                f"wiley/{refused.quarantined}.reason.txt",
            ]
        )
        assert scene.take_in().taken == []


def test_a_known_master_list_costs_one_pass_and_writes_for_new_dois_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, new, batch = 20_000, 50, 8_000
    with DepositsScene(tmp_path, f"sqlite:///{tmp_path}/milepost.db") as scene:
        scene.deliver("1.csv", _dois(known))
        scene.take_in()
        asked: list[int] = []
        written: list[int] = []
        inner = scene.ledger.context.ledger
        recognise, add = inner.recognise, inner.add
        monkeypatch.setattr(
            inner,
            "recognise",
            lambda route, keys, digests: asked.append(len(keys)) or recognise(route, keys, digests),
        )
        monkeypatch.setattr(
            inner,
            "add",
            lambda plan, items, now: written.append(len(items)) or add(plan, items, now),
        )
        for name in ("peek", "get", "find", "apply"):
            monkeypatch.setattr(
                inner, name, lambda *_, name=name: pytest.fail(f"the intake has called {name}")
            )
        scene.deliver("2.csv", _dois(known) + _dois(new, "new"))
        [taken] = scene.take_in().taken
        monkeypatch.undo()
        assert (taken.report.counts["new"], taken.report.counts["in_progress"]) == (new, known)
        assert (len(asked), sum(asked)) == (-(-(known + new) // batch), known + new)
        assert sum(written) == new


def test_on_aws_known_dois_are_looked_up_in_batches_of_100(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, new = 2_000, 50
    model, requests = AwsModel(), Counter[str]()
    monkeypatch.setenv("MILEPOST_BLOBS", str(tmp_path / "blobs"))
    with (
        model.served() as url,
        DepositsScene(tmp_path, f"dynamodb://{model.region}/test?endpoint={url}") as scene,
    ):
        scene.deliver("1.csv", _dois(known))
        scene.take_in()
        answer = model._answer

        def counted(service: str, operation: str, params: dict[str, Any]) -> dict[str, Any]:
            requests[operation] += 1
            return answer(service, operation, params)

        inner = scene.ledger.context.ledger.store.requests  # type: ignore[attr-defined]
        monkeypatch.setattr(inner.client("dynamodb"), "_answer", counted)
        scene.deliver("2.csv", _dois(known) + _dois(new, "new"))
        [taken] = scene.take_in().taken
        assert (taken.report.counts["new"], taken.report.counts["in_progress"]) == (new, known)
        # 21 look-ups of rows, one of the seals of what has no row, one write for each new DOI, two
        # for the record of the list.
        assert requests["batch_get_item"] <= 22
        assert requests["put_item"] == new
        assert requests["update_item"] <= 2
        assert requests.keys() <= {"batch_get_item", "put_item", "update_item", "query"}


def test_a_long_list_takes_little_memory(tmp_path: Path) -> None:
    lines = 10_000
    with DepositsScene(tmp_path, f"sqlite:///{tmp_path}/milepost.db") as scene:
        scene.deliver("1.csv", _dois(lines))
        scene.take_in()
        path = scene.deliver(
            "2.csv",
            "".join(
                f"Title of article {number},10.1/old.{number},{'x' * 2_000}\n"
                for number in range(lines)
            ),
        )
        size = path.stat().st_size
        tracemalloc.start()
        try:
            scene.take_in()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert not path.exists()
        assert peak < size / 2


def _dois(count: int, kind: str = "old") -> str:
    return "".join(f"10.1/{kind}.{number}\n" for number in range(count))


def test_a_name_that_is_not_utf_8_stops_no_other_list(scene: DepositsScene) -> None:
    (scene.inbox / os.fsdecode(b"a-\xff.csv")).write_bytes(b"10.1/a\n")
    scene.deliver("b.csv", "10.1/b\n")
    report = scene.take_in()
    assert scene.keys() == ["10.1/a", "10.1/b"]
    assert len(report.taken) == 2
    assert len(scene.archived()) == 2
    assert json.loads(msgspec.json.encode(report))


@pytest.mark.parametrize("name", ["n" * 251 + ".csv", "ü" * 125 + ".csv"])
def test_a_list_with_the_longest_name_is_archived(scene: DepositsScene, name: str) -> None:
    scene.deliver(name, "10.1/a\n")
    report = scene.take_in()
    assert not report.unread
    assert len(scene.archived()) == 1
    assert scene.take_in().taken == []


def test_a_list_that_is_dated_in_the_future_is_taken_in(scene: DepositsScene) -> None:
    path = scene.deliver("list.csv", "10.1/a\n")
    os.utime(path, (4e9, 4e9))
    assert scene.take_in().new == 1


def test_a_pipe_in_the_inbox_is_not_read(scene: DepositsScene) -> None:
    os.mkfifo(scene.inbox / "pipe.csv")
    scene.deliver("list.csv", "10.1/a\n")
    with alarm():
        assert scene.take_in().new == 1


@pytest.mark.parametrize(
    "text", ["(" * 1_000_000, "https://doi.org/" * 60_000, "10.1/" + ")" * 1_000_000]
)
def test_a_hostile_line_costs_no_time(scene: DepositsScene, text: str) -> None:
    scene.deliver("list.csv", f"10.1/a\n{text}\n10.1/b\n")
    with alarm():
        [taken] = scene.take_in().taken
    assert scene.keys() == ["10.1/a", "10.1/b"]
    assert taken.report.counts["malformed"] == 1
