"""Collection of digests by several processes and after crashes: no DOI is mailed twice for one
result, and none is left out."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import milepost as mp
import milepost.application as mpa
from milepost_aws.aws_model import AwsModel
from milepost_deposits.application import application
from milepost_deposits.controls import PAUSED_BY
from milepost_deposits.digest.collect import CURSOR, collect_digests, place_cursor
from milepost_deposits.digest.mail import Digest, html_of, subject_of, text_of
from milepost_deposits.feed_places import place_before
from milepost_deposits.settings import DepositsApp, DepositsSettings, MailSettings
from milepost_testing import VirtualClock
from milepost_testing.drive import run_until_rest

OWNERS = {"10.1002": ("one@example.org",)}


DAY_MS = 86_400_000


class MailedScene:
    """A route of DOIs that a test ends as it likes, and the route of mails, whose stage notes each
    digest."""

    def __init__(self, url: str, clock: VirtualClock, owners: dict[str, tuple[str, ...]]) -> None:
        self.clock = clock
        self.sent: list[Digest] = []
        mail = MailSettings(
            smtp="smtp://127.0.0.1:9", sender="a@example.org", to=("b@example.org",), owners=owners
        )
        self.settings = DepositsSettings(mail=mail)
        deposits = mp.Route("deposits", key="doi")
        deposits.external("submit")
        digests = mp.Route("deposits-digests", key="id")

        @digests.stage("mail")
        def send(item: mp.Item) -> mp.Outcome:
            self.sent.append(msgspec.convert(item.input["digest"], Digest))
            return mp.Done()

        self.ledger = mp.open(url, routes=[deposits, digests], clock=clock)

    @property
    def app(self) -> DepositsApp:
        return mpa.AppContext("deposits", self.settings, self.ledger.context)

    def deposit(self, *dois: str) -> None:
        self.ledger.submit("deposits", *({"doi": doi} for doi in dois))
        self.work()
        for doi in dois:
            self.ledger.confirm("deposits", doi, "submit", {"handle": "1/2"}, by="dss")
        self.work()

    def work(self) -> None:
        # Each run is a process of its own: on AWS it reads the stream when the lease of the one
        # before has run out.
        for _ in range(2):
            run_until_rest(self.ledger.context, self.clock, (), self.clock.now() + 60_000)
            self.clock.advance_to(self.clock.now() + 60_000)

    def mailed(self) -> list[str]:
        """The DOIs in all mails so far."""
        self.work()
        return sorted(
            entry.doi
            for digest in self.sent
            for entry in (*digest.deposited, *digest.retries, *digest.manual)
        )


MakeMailed = Callable[..., MailedScene]


@pytest.fixture(params=["memory", "sqlite", "aws"])
def make(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MakeMailed]:
    monkeypatch.chdir(tmp_path)  # large values of the model of AWS are in a folder there
    with ExitStack() as stack:
        clock = VirtualClock()

        def made(owners: dict[str, tuple[str, ...]] | None = None) -> MailedScene:
            if request.param == "aws":
                model = AwsModel(clock=lambda: clock.now() / 1000)
                url = f"dynamodb://eu-central-1/t{secrets.token_hex(4)}?endpoint={stack.enter_context(model.served())}"
            else:
                url = {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path}/ledger.db"}[
                    request.param
                ]
            scene = MailedScene(url, clock, owners or {})
            stack.callback(scene.ledger.close)
            return scene

        yield made


def test_a_note_in_the_history_of_a_deposited_doi_is_no_news(make: MakeMailed) -> None:
    scene = make()
    scene.deposit("10.1002/a")
    collect_digests(scene.app)
    late = mp.Retry("an error result that came late", category="DSS_ERROR")
    scene.ledger.confirm("deposits", "10.1002/a", "submit", outcome=late, by="dss", awaited=True)
    scene.work()
    assert scene.app.show("deposits", "10.1002/a")["history"][-1]["reason"] == "noted"  # type: ignore[index]
    collect_digests(scene.app)
    assert scene.mailed() == ["10.1002/a"]


def test_a_doi_that_ends_between_two_collections_at_once_is_mailed(
    make: MakeMailed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes collect from the same place. The second one sees a DOI more, and moves the
    cursor first."""
    scene = make(OWNERS)
    scene.deposit("10.1002/a")
    submit = mpa.AppContext.submit
    second: list[bool] = []

    def submit_after_another(self: DepositsApp, *args: Any, **more: Any) -> Any:
        if not second:
            second.append(True)
            scene.deposit("10.1002/b", "10.5555/c")
            collect_digests(scene.app)
        return submit(self, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(mpa.AppContext, "submit", submit_after_another)
        collect_digests(scene.app)
    collect_digests(scene.app)
    assert scene.mailed() == ["10.1002/a", "10.1002/b", "10.5555/c"]


def test_a_doi_that_ends_after_another_process_has_collected_is_mailed(
    make: MakeMailed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first process has submitted its mails, but not moved the cursor; the second one has
    collected more."""
    scene = make(OWNERS)
    place_cursor(scene.app)
    scene.deposit("10.1002/a")
    put = type(scene.app.documents).put
    first: list[bool] = []

    def put_after_another(self: Any, *args: Any, **more: Any) -> bool:
        if not first:
            first.append(True)
            return False
        return put(self, *args, **more)

    show = mpa.AppContext.show

    def blind(self: DepositsApp, route: str, key: str) -> Any:
        return (
            None
            if route == "deposits-digests" and not blinded.append(True) and len(blinded) == 1
            else show(self, route, key)
        )

    blinded: list[bool] = []
    with monkeypatch.context() as patch:
        patch.setattr(type(scene.app.documents), "put", put_after_another)
        collect_digests(scene.app)
        scene.deposit("10.1002/b", "10.5555/c")
        patch.setattr(mpa.AppContext, "show", blind)
        collect_digests(scene.app)
    collect_digests(scene.app)
    assert scene.mailed() == ["10.1002/a", "10.1002/b", "10.5555/c"]


def test_a_process_that_dies_between_the_mails_of_two_owners_leaves_none_out(
    make: MakeMailed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On AWS the mails of one collection are several writes."""

    class Killed(Exception):
        pass

    scene = make(OWNERS)
    scene.deposit("10.1002/a", "10.5555/c")
    submit = mpa.AppContext.submit

    def first_of(self: DepositsApp, route: str, *inputs: Any, **more: Any) -> Any:
        submit(self, route, *inputs[:1], **more)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(mpa.AppContext, "submit", first_of)
        with pytest.raises(Killed):
            collect_digests(scene.app)
    collect_digests(scene.app)
    collect_digests(scene.app)
    assert scene.mailed() == ["10.1002/a", "10.5555/c"]


def test_a_digest_of_thousands_is_mailed(make: MakeMailed) -> None:
    """Larger than a row of DynamoDB may be."""
    scene = make()
    dois = [f"10.1002/{'long' * 80}-{number}" for number in range(1_200)]
    scene.deposit(*dois)
    for _ in range(5):  # on AWS the feed is behind, and a later collection has the rest
        collect_digests(scene.app)
        scene.work()
    assert scene.mailed() == sorted(dois)


def test_the_first_digest_of_an_old_ledger_begins_a_week_ago_and_says_so(
    make: MakeMailed, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = make()
    for number in range(40):
        scene.deposit(*(f"10.1002/old-{number}-{place}" for place in range(5)))
    scene.clock.advance_to(scene.clock.now() + 30 * DAY_MS)
    scene.deposit("10.1002/new")
    reads: list[int] = []
    feed = mpa.AppContext.feed

    def counted(self: DepositsApp, after: int = 0, limit: int = 500) -> list[dict[str, Any]]:
        found = feed(self, after, limit)
        reads.append(len(found))
        return found

    monkeypatch.setattr(mpa.AppContext, "feed", counted)
    collect_digests(scene.app)
    assert scene.mailed() == ["10.1002/new"]
    [digest] = scene.sent
    assert digest.counts["Success"] == 201
    [note] = digest.notes
    assert note.startswith("This is the first digest. It begins on ")
    assert sum(reads) < 120, (
        "of hundreds of lines, those of a binary search and the new ones are read"
    )
    scene.deposit("10.1002/newer")
    collect_digests(scene.app)
    assert scene.mailed() == ["10.1002/new", "10.1002/newer"]
    assert scene.sent[-1].notes == ()


def test_a_first_digest_from_now_on(make: MakeMailed) -> None:
    scene = make()
    scene.settings = DepositsSettings(
        mail=MailSettings(smtp="smtp://127.0.0.1:9", sender="a@x", to=("b@x",), first="0s")
    )
    scene.deposit("10.1002/a")
    place_cursor(scene.app)
    scene.deposit("10.1002/b")
    collect_digests(scene.app)
    assert scene.mailed() == ["10.1002/b"]


@given(
    ages=st.lists(st.integers(0, 20), max_size=60),
    gap=st.integers(1, 10_000),
    since=st.integers(0, 21),
)
def test_the_place_before_a_time_is_that_of_the_last_older_line(
    ages: list[int], gap: int, since: int
) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    lines = [
        {"seq": 7 + place * gap, "at": (start + timedelta(days=day)).isoformat()}
        for place, day in enumerate(sorted(ages))
    ]
    reads = 0

    def line_after(place: int) -> dict[str, Any] | None:
        nonlocal reads
        reads += 1
        return next((line for line in lines if line["seq"] > place), None)  # type: ignore[operator]

    older = [line["seq"] for line, day in zip(lines, sorted(ages), strict=True) if day < since]
    assert place_before(start + timedelta(days=since), line_after) == max(older, default=0)  # type: ignore[type-var]
    assert reads <= 2 * (7 + 60 * gap).bit_length() + 4


def test_a_digest_that_was_recorded_before_a_crash_is_followed_by_one_with_the_rest(
    make: MakeMailed, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = make()
    place_cursor(scene.app)
    scene.deposit("10.1002/a")
    with monkeypatch.context() as patch:
        patch.setattr(type(scene.app.documents), "put", lambda *_, **__: False)
        collect_digests(scene.app)
    scene.deposit("10.1002/b")
    collect_digests(scene.app)
    assert scene.mailed() == ["10.1002/a", "10.1002/b"], "one call is enough for both"


def test_a_partner_that_asks_to_slow_down_is_news_once_and_a_note_in_other_digests(
    make: MakeMailed,
) -> None:
    scene = make()
    scene.ledger.submit("deposits", {"doi": "10.1002/waits"})
    scene.ledger.pause(
        "deposits", "submit", by=PAUSED_BY, reason="DSpace asks us to slow down", until="7d"
    )
    scene.work()
    collect_digests(scene.app)
    scene.work()
    [first] = scene.sent
    assert (first.deposited, first.retries, first.manual) == ((), (), ())
    assert subject_of(first) == "Deposits: DSpace asks us to slow down"
    for text in (text_of(first), html_of(first)):
        assert "DSpace asks us to slow down; 1 DOI waits until " in text
    # The next day there is nothing new to say about it.
    scene.ledger.submit("deposits", {"doi": "10.1002/also"})
    scene.work()
    collect_digests(scene.app)
    scene.work()
    assert len(scene.sent) == 1
    scene.deposit("10.1002/a")
    collect_digests(scene.app)
    scene.work()
    [_, second] = scene.sent
    assert subject_of(second) == "Deposits: 1 deposited"
    assert "DSpace asks us to slow down; 2 DOIs wait" in text_of(second)


def test_a_move_to_another_ledger_keeps_the_place_of_the_digest() -> None:
    kept = {"after": 7, "at": "2026-01-31T08:00:00+00:00", "since": None}
    assert application.translate(CURSOR, kept, lambda place: place + 100) == {**kept, "after": 107}
    assert application.translate("run", {"after": 7}, lambda place: place + 100) == {"after": 7}
