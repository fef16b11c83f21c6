"""The metadata stage: Crossref is asked politely, within its limits, and whatever it answers is a
counted try or a metadata file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.deposits.conftest import MakeScene
from tests.deposits.deposits_scene import DepositsScene, item_of

import milepost as mp
import milepost_net as net
from milepost_deposits.fetch.metadata import SLOWEST, MetadataStage, RequestPace, gap_s
from milepost_deposits.files import FileStore
from milepost_deposits.settings import DssSettings, SubmitSettings
from milepost_deposits.standins.sources import CrossrefStandIn, PublisherStandIn

SICI = "10.1002/(sici)1096-8644(199605)100:1<19::aid-ajpa3>3.0.co;2-0"


@pytest.fixture
def stage(make_scene: MakeScene, tmp_path: Path) -> MetadataStage:
    return MetadataStage(make_scene().settings, FileStore(str(tmp_path / "own")))


def error_of(scene: DepositsScene, doi: str) -> tuple[str, str]:
    error = scene.row(doi)["error"]
    return error["category"], error["message"]


def test_the_metadata_file_has_the_form_of_its_reader(
    make_scene: MakeScene, crossref: CrossrefStandIn, publisher: PublisherStandIn, tmp_path: Path
) -> None:
    crossref.put("10.1/x", title=["T"], URL="http://dx.doi.org/10.1/x", DOI="10.1/X")
    publisher.put("10.1/x")
    scene = make_scene(clean="never")
    scene.ledger.submit("deposits", {"doi": "10.1/X"})
    scene.round()
    [deposit] = scene.submission.seen
    assert (deposit.doi, deposit.title) == ("10.1/x", "T")
    file = Path(deposit.metadata.place)
    assert json.loads(file.read_bytes()) == {
        "dc.title": [{"value": "T"}],
        "dc.relation.isversionof": [{"value": "http://dx.doi.org/10.1/x"}],
    }
    assert deposit.metadata.size == file.stat().st_size
    dss = SubmitSettings(
        dss=DssSettings("q", "r", "DSpace@MIT", "wiley", metadata="old"),
        search="http://127.0.0.1:9",
        collection="1/2",
    )
    stage = MetadataStage(make_scene(submit=dss).settings, FileStore(str(tmp_path / "old")))
    old = stage(item_of("10.1/x"))
    assert isinstance(old, mp.Done)
    assert json.loads(Path(old.output["file"]["place"]).read_bytes())["metadata"][0] == {
        "key": "dc.title",
        "value": "T",
    }


def test_every_request_asks_for_the_polite_pool(
    make_scene: MakeScene, crossref: CrossrefStandIn
) -> None:
    crossref.everything = True
    scene = make_scene()
    scene.ledger.submit("deposits", {"doi": SICI}, {"doi": "10.1/x"})
    scene.round()
    assert crossref.polite == [True, True]
    assert {scene.row(doi)["stage"] for doi in (SICI, "10.1/x")} == {"content"}


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"title": [], "URL": "u"}, "no title"),
        ({"title": ["T"]}, "no URL"),
        ({"title": ["T"], "URL": "u", "DOI": "10.1/other"}, "record of 10.1/other"),
    ],
)
def test_a_record_that_does_not_suffice_is_a_counted_try(
    stage: MetadataStage,
    crossref: CrossrefStandIn,
    tmp_path: Path,
    record: dict[str, object],
    reason: str,
) -> None:
    crossref.put("10.1/x", **record)
    outcome = stage(item_of("10.1/x"))
    assert isinstance(outcome, mp.Retry)
    assert reason in outcome.error
    assert "10.1/x" in outcome.error
    assert not (tmp_path / "own").exists()


def test_without_metadata_nothing_is_fetched_or_submitted(
    make_scene: MakeScene, crossref: CrossrefStandIn, publisher: PublisherStandIn
) -> None:
    crossref.put("10.1/x", title=["T"])
    scene = make_scene()
    scene.ledger.submit("deposits", {"doi": "10.1/x"})
    scene.round()
    assert (scene.row("10.1/x")["attempts"], scene.word("10.1/x")) == (1, "Failed and will retry")
    assert "insufficient metadata for 10.1/x" in error_of(scene, "10.1/x")[1]
    assert publisher.requests == []
    assert scene.submission.seen == []


def test_a_404_in_plain_text_stops_no_other_doi(
    make_scene: MakeScene, crossref: CrossrefStandIn, publisher: PublisherStandIn
) -> None:
    crossref.put("10.1/good")
    publisher.put("10.1/good")
    scene = make_scene()
    scene.ledger.submit("deposits", {"doi": "10.1/bad"}, {"doi": "10.1/good"})
    report = scene.round()
    assert [deposit.doi for deposit in scene.submission.seen] == ["10.1/good"]
    assert error_of(scene, "10.1/bad") == ("NO_RECORD", "Crossref has no record of 10.1/bad")
    assert report.counts["Failed and will retry"] == 1
    assert report.counts["Success"] == 1


@pytest.mark.parametrize(
    ("kind", "status", "category"),
    [
        ("html", 200, "NOT_JSON"), ("garbage", 200, "NOT_JSON"), ("status", 500, "CROSSREF"), ("status", 503, "CROSSREF"),
        ("status", 403, "CROSSREF"), ("reset", 200, "CLOSED"), ("cut", 200, "CUT"),
    ],
)  # fmt: skip
def test_every_fault_of_crossref_is_a_counted_try(
    stage: MetadataStage, crossref: CrossrefStandIn, kind: str, status: int, category: str
) -> None:
    crossref.everything = True
    crossref.fail(kind, status, acted=True)  # type: ignore[arg-type]
    outcome = stage(item_of("10.1/x"))
    assert isinstance(outcome, mp.Retry)
    assert outcome.category == category
    assert "Crossref" in outcome.error


@pytest.mark.parametrize("body", [b"[]", b"{}", b'{"message": 5}', b"\xff\xfe", b"[" * 100_000])
def test_json_that_is_no_record_is_a_counted_try(
    stage: MetadataStage, crossref: CrossrefStandIn, body: bytes
) -> None:
    crossref.fail("status", 200, body=body)
    outcome = stage(item_of("10.1/x"))
    assert isinstance(outcome, mp.Retry)
    assert outcome.category == "NOT_JSON"


def test_a_rate_limit_is_waited_for_within_one_try(
    make_scene: MakeScene, crossref: CrossrefStandIn, tmp_path: Path
) -> None:
    crossref.everything = True
    crossref.fail("status", 429, times=2, headers={"Retry-After": "7"})
    waits: list[float] = []
    clock = _Clock(waits)
    stage = MetadataStage(
        make_scene().settings,
        FileStore(str(tmp_path / "own")),
        RequestPace(0.2, clock=clock, sleep=clock.sleep),
    )
    assert isinstance(stage(item_of("10.1/x")), mp.Done)
    assert crossref.count("GET *") == 3
    assert waits == [7, 7]


def test_a_rate_limit_that_does_not_end_is_a_counted_try(
    make_scene: MakeScene, crossref: CrossrefStandIn, tmp_path: Path
) -> None:
    crossref.fail("status", 429)
    clock = _Clock([])
    stage = MetadataStage(
        make_scene().settings,
        FileStore(str(tmp_path / "own")),
        RequestPace(0.2, clock=clock, sleep=clock.sleep),
    )
    outcome = stage(item_of("10.1/x"))
    assert isinstance(outcome, mp.Retry)
    assert outcome.http_status == 429
    assert crossref.count("GET *") == 3


class _Clock:
    """A clock that only sleeping moves."""

    def __init__(self, waits: list[float]) -> None:
        self.now, self.waits = 0.0, waits

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.waits.append(round(seconds, 6))
        self.now += seconds


def test_the_stated_limit_sets_the_pace() -> None:
    clock = _Clock([])
    pace = RequestPace(0.2, clock=clock, sleep=clock.sleep)
    pace.wait()
    pace.heard(net.HeaderList([("X-Rate-Limit-Limit", "10"), ("X-Rate-Limit-Interval", "1s")]))
    for _ in range(3):
        pace.wait()
    assert clock.waits == [0.2, 0.11, 0.11]
    pace.slow_down(5)
    pace.wait()
    pace.wait()
    assert clock.waits[3:] == [5, 0.22]


@pytest.mark.parametrize(
    ("limit", "interval", "gap"),
    [
        ("50", "1s", 0.022), ("2", "1m", 33.0), ("1", "1h", SLOWEST), ("0", "1s", None), ("ten", "1s", None), ("10", "soon", None),
        ("", "", None), ("10", "1", 0.11), ("²", "1s", None),
    ],
)  # fmt: skip
def test_limits_are_read_or_ignored(limit: str, interval: str, gap: float | None) -> None:
    assert gap_s(
        net.HeaderList([("x-rate-limit-limit", limit), ("x-rate-limit-interval", interval)])
    ) == (None if gap is None else pytest.approx(gap))
