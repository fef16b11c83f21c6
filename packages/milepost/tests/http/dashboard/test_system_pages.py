"""The pages of the system as the server renders them: subscribers, events, acts and processes."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urljoin

import msgspec
import pytest
from msgspec.structs import replace
from tests.http.guarded_server import GuardedServer, guarded_server
from tests.http.live_server import LiveServer

import milepost as mp
from milepost.core.errors import EventRefused
from milepost.core.status import FAILED
from milepost.core.values.durations import iso
from milepost.core.values.histogram import Histogram
from milepost.engine.act_log import all_acts, record, select
from milepost.engine.acts.bulk import act
from milepost.engine.acts.controls import limit, pause
from milepost.engine.acts.verbs import CancelVerb
from milepost.engine.events.feed import page_back
from milepost.engine.metrics import MetricFigures
from milepost.engine.retention import prune
from milepost.http.dashboard.charts import durations, spread, within
from milepost.http.dashboard.pages import events
from milepost.http.dashboard.pages.acts import ActNames, in_words
from milepost.ports.documents import ACT, PROCESS, Act, Process
from milepost.ports.items import Query
from milepost.station import Station
from milepost.subscribers import CallSubscriber
from milepost_testing import VirtualClock

SIGNED = {"by": "ops", "reason": "a test"}
MARKUP = "<img src=x>"


@pytest.fixture
def at(tmp_path: Path) -> Iterator[GuardedServer]:
    """Two routes, and a door that asks for keys once there are some."""
    with guarded_server(f"sqlite:///{tmp_path}/ledger.db") as opened:
        yield opened


def text_of(live_server: LiveServer, path: str, key: str | None = None, **headers: str) -> str:
    """A page as it reads: without its tags, and with one space between words."""
    answer = live_server.call(
        "GET",
        path,
        key=key,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )
    assert answer.status == 200, answer
    return " ".join(
        html.unescape(re.sub(r"<[^>]+>", " ", answer.raw.decode().partition("<main")[2])).split()
    )


def events_on(page: str) -> list[str]:
    return re.findall(r'<li class="[^"]*" data-name="([^"]+)"', page)


def link(page: str, words: str) -> str | None:
    found = re.search(rf'href="([^"]+)">{words}', page)
    return None if found is None else html.unescape(found[1])


def all_pages(live_server: LiveServer, path: str) -> list[list[str]]:
    """The events of each page, from this one back as far as the links lead."""
    pages = []
    while path:
        page = live_server.call("GET", path).raw.decode()
        pages.append(events_on(page))
        earlier = link(page, "(?:Earlier|Search earlier events)")
        path = urljoin(path, earlier) if earlier else ""
    return pages


def parked(at: GuardedServer, *routes: str) -> None:
    """For each route an item that the subscriber `hook` does not take."""

    def hook(event: object) -> None:
        raise EventRefused(f"not here: {MARKUP}")

    for route in routes:
        at.milepost.submit(route, {"id": f"{route}-1"})
    Station(at.ctx, subscribers=[CallSubscriber(hook, name="hook")]).run(until_idle_s=0)


# Events -------------------------------------------------------------------------------------------


def test_all_that_happened_is_found_by_going_back_page_by_page(at: GuardedServer) -> None:
    at.milepost.submit("parcels", *({"id": f"P-{n}"} for n in range(150)))
    pages = all_pages(at, "/events")
    assert [int(place) for page in pages for place in page] == list(range(150, 0, -1))
    assert [len(page) for page in pages] == [60, 60, 30]


def test_what_is_rare_is_found_at_once_however_far_back_it_is(
    at: GuardedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "STEP", 50)
    at.milepost.submit("parcels", {"id": "P-1"}, {"id": "P-2"})
    at.milepost.submit("letters", *({"id": f"L-{n}"} for n in range(200)))
    assert all_pages(at, "/events?route=parcels&kind=accepted") == [["2", "1"]]
    assert "since" not in text_of(at, "/events?route=parcels")


def test_how_far_back_was_looked_is_said_with_the_way_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "STEP", 50)
    monkeypatch.setattr(events, "FAR", 100)
    clock, times = VirtualClock(), []
    with guarded_server(f"sqlite:///{tmp_path}/ledger.db", clock=clock) as at:
        for name, n in (("parcels", 2), ("letters", 123), ("letters", 97), ("parcels", 1)):
            at.milepost.submit(name, *({"id": f"{clock.now()}-{number}"} for number in range(n)))
            times.append(iso(clock.now()))
            clock.advance("1h")
        assert all_pages(at, "/events?route=parcels&kind=accepted") == [["223"], [], ["2", "1"]]
        first = at.call("GET", "/events?route=parcels").raw.decode()
        assert f'These are all since <time datetime="{times[1]}">' in first
        second = text_of(at, urljoin("/events", link(first, "Earlier") or ""))
        assert (
            f"No events of this kind since {times[1]} ; earlier events were not searched. Search earlier events"
            in second
        )
        assert (
            "No events of this kind before that, back to the oldest line that is kept."
            in text_of(at, "/events?kind=overdue&before=2")
        )
        part = at.key("read", name="part", routes=["parcels"])
        assert "No events recently; there may be earlier ones." in text_of(
            at, "/events?before=223", part
        ), "no time of another route's line"


def test_going_back_ends_where_older_lines_have_been_pruned(tmp_path: Path) -> None:
    clock = VirtualClock()
    with guarded_server(f"sqlite:///{tmp_path}/ledger.db", clock=clock) as at:
        at.milepost.submit("parcels", *({"id": f"F-{n}", "weigh": "reject"} for n in range(100)))
        at.work()
        [last] = at.ctx.ledger.feed(at.ctx.ledger.last_seq() - 1, 1)
        clock.advance("1d")
        prune(at.ctx, "parcels", 3_600_000, statuses=FAILED, **SIGNED)
        at.milepost.submit("parcels", {"id": "P-1"})
        pages, place = [], at.ctx.ledger.last_seq() + 1
        while place:
            found = page_back(at.ctx, place, 60, lambda event: True, 60)
            pages.append([told.event.key for told in found.events])
            place = found.next
        # The item that was written last is kept; before its first line there is nothing.
        assert [key for page in pages for key in page] == ["P-1", last.key, last.key]
        assert len(pages) <= 4


def test_the_raw_feed_is_linked_from_the_same_place_with_the_same_filter(at: GuardedServer) -> None:
    at.milepost.submit("letters", {"id": "L-1"})
    at.milepost.submit("parcels", *({"id": f"P-{n}"} for n in range(3)))
    page = at.call("GET", "/events?route=parcels").raw.decode()
    raw = at.call("GET", link(page, "the raw feed") or "").body["events"]
    assert [str(event["seq"]) for event in raw] == events_on(page)[::-1]


@pytest.mark.parametrize(
    ("query", "status"), [("kind=nonsense", 400), ("route=nowhere", 404), ("before=last", 400)]
)
def test_what_cannot_be_asked_for_is_said(at: GuardedServer, query: str, status: int) -> None:
    assert at.call("GET", f"/events?{query}").status == status


def test_who_is_told_and_what_they_do_not_take_stays_text(at: GuardedServer) -> None:
    parked(at, "parcels")
    page = at.call("GET", "/events").raw.decode()
    assert MARKUP not in page
    assert f"not here: {MARKUP}" in text_of(at, "/events")
    assert "1 parked" in text_of(at, "/events")
    assert 'href="/items/parcels/parcels-1"' in page


# Acts ---------------------------------------------------------------------------------------------


def some_acts(at: GuardedServer) -> None:
    at.milepost.submit(
        "parcels", *({"id": f"F-{n}", "weigh": "reject"} for n in range(3)), {"id": "P-1"}
    )
    at.work()
    query = Query(route="parcels", statuses=FAILED, stages=frozenset({"weigh"}), prefix="F-")
    act(
        at.ctx,
        select(at.ctx, "parcels", query=query),
        CancelVerb(),
        by="night shift",
        reason="nobody wants them",
        act_id="first",
    )
    pause(at.ctx, "letters", None, None, by="ops", reason="no post on Sundays")


def test_the_log_says_who_did_what_to_which_items_why_and_how_it_went(at: GuardedServer) -> None:
    some_acts(at)
    at.milepost.submit("letters", {"id": "one"})
    act(
        at.ctx,
        select(at.ctx, "letters", keys=["one"]),
        CancelVerb(),
        by="ops",
        reason="a single one",
    )
    told = text_of(at, "/acts")
    assert (
        "night shift cancel parcels items that failed, at weigh, with keys that begin with F- nobody wants them"
        in told
    )
    assert "ops pause letters no post on Sundays done" in told
    assert "ops cancel letters one a single one 1 cancelled" in told
    [single] = [one.id for one in all_acts(at.ctx) if one.filter.get("key") == "one"]
    assert link(at.call("GET", f"/acts/{single}").raw.decode(), "one") == "/items/letters/one"


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("verb=pause", ["pause"]),
        ("by=night+shift", ["cancel"]),
        ("route=letters", ["pause"]),
        ("verb=pause&route=parcels", []),
    ],
)
def test_acts_are_chosen_by_verb_person_and_route(
    at: GuardedServer, query: str, shown: list[str]
) -> None:
    some_acts(at)
    page = at.call("GET", f"/acts?{query}").raw.decode()
    assert re.findall(r'href="/acts/[^"]+">([^<]+)</a>', page) == shown


def test_one_act_leads_to_the_items_that_match_it_now(at: GuardedServer) -> None:
    some_acts(at)
    page = at.call("GET", "/acts/first").raw.decode()
    assert "Every item that it changed has a line in its history" in text_of(at, "/acts/first")
    items = link(page, "Those that match now")
    assert (
        items == "/items/parcels?status=MAX_RETRIES_EXCEEDED&status=REJECTED&stage=weigh&prefix=F-"
    )
    at.milepost.submit("parcels", {"id": "F-later", "weigh": "reject"})
    at.work()
    assert "F-later" in text_of(at, items)


def test_an_act_that_was_cut_off_says_how_far_it_came_and_is_gone_on_with(
    at: GuardedServer,
) -> None:
    begun = Act(
        "cut",
        "retry",
        "parcels",
        "ops",
        "the scale is back",
        1,
        {"query": {"route": "parcels"}},
        done=2,
        refused=1,
        expected=10,
    )
    at.ctx.ledger.write(ACT, begun.id, begun)
    for path in ("/acts", "/acts/cut"):
        page = at.call("GET", path).raw.decode()
        assert '<progress max="10" value="3"' in page
        assert 'data-go-on="cut"' in page
        assert "not finished 2 restarted, 1 refused" in text_of(at, path)
    at.ctx.ledger.write(ACT, begun.id, replace(begun, moved_at=at.ctx.clock.now()))
    assert "data-go-on" not in at.call("GET", "/acts/cut").raw.decode()
    assert "running 2 restarted, 1 refused" in text_of(at, "/acts/cut")
    at.ctx.ledger.write(ACT, begun.id, begun)
    reader = at.key("read")
    assert "data-go-on" not in at.call("GET", "/acts/cut", key=reader).raw.decode()


def test_acts_go_back_page_by_page(at: GuardedServer) -> None:
    for number in range(130):
        record(at.ctx, "pause", "parcels", "ops", f"why {number}", {"scope": "parcels"})
    first = at.call("GET", "/acts?verb=pause").raw.decode()
    later = at.call("GET", urljoin("/acts", link(first, "Earlier") or "")).raw.decode()
    shown = [re.findall(r">(why \d+)<", page) for page in (first, later)]
    assert [len(page) for page in shown] == [100, 30]
    assert len({*shown[0], *shown[1]}) == 130
    assert link(later, "Earlier") is None


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"scope": "parcels/weigh"}, "parcels/weigh"),
        ({"subscriber": "hook", "key": "a"}, "hook: a"),
        ({"keys": 2_000, "digest": "x"}, "2,000 items by key"),
        ({"keys": "all"}, "all rows"),
        ({"ids": ["a", "b"]}, "2 entries of the quarantine"),
        ({"query": {}}, "all items"),
        (
            {"query": {"statuses": ["QUEUED", "WAITING"], "lane": "north"}},
            "items queued or waiting, in the lane north",
        ),
        (
            {"query": {"lists": ["L1"], "group": "g"}},
            "items with the cause HTTP (no answer), from the list march.txt",
        ),
        ({"query": {"group": "long ago"}}, "items with the cause long ago"),
        (
            {"query": {"entered_before": "2026-03-01T12:00:00.000Z"}},
            "items at their stage since before 2026-03-01 12:00 UTC",
        ),
        ({"query": {"lists": ["gone"]}}, "items from the list gone"),
        ({"version": 2}, ""),
    ],
)
def test_what_an_act_was_for_is_said_in_words(about: dict[str, object], words: str) -> None:
    assert in_words(about, ActNames({"L1": "march.txt"}, {"g": "HTTP (no answer)"})) == words


# The system ---------------------------------------------------------------------------------------


def a_process(at: GuardedServer, name: str, **facts: object) -> None:
    now = at.ctx.clock.now()
    process = Process(
        name, "archive-1", 42, now - 60_000, **{"seen_at": now, "roles": {"worker": now}, **facts}
    )  # type: ignore[arg-type]
    at.ctx.ledger.write(PROCESS, name, msgspec.to_builtins(process))


def test_who_is_at_work_who_is_silent_and_who_has_stopped(at: GuardedServer) -> None:
    now = at.ctx.clock.now()
    slow = {"route": "parcels", "stage": "weigh", "key": "P-3", "seconds": 4_321}
    a_process(at, "alive", in_hand=12, overrunning=[slow], outdated=["letters"])
    a_process(at, "lost", seen_at=now - 600_000, roles={"worker": now, "resender": now - 600_000})
    a_process(at, "ended", seen_at=now - 600_000, stopped=True)
    told = text_of(at, "/system")
    assert re.search(r"alive is running, last heartbeat \d+ m?s ago, 12 leased", told)
    assert "lost has been silent for 10 min , 0 leased" in told
    assert "1 stopped in the last week ended stopped 10 min ago" in told
    assert "parcels / weigh / P-3, 4,321 s so far" in told
    assert "it has an older version of letters" in told
    assert "10 min ago; start milepost up" in told  # the resender


def test_what_is_paused_and_limited_is_there_beside_what_the_route_file_says(
    at: GuardedServer,
) -> None:
    pause(at.ctx, "parcels", "weigh", "north/1", **SIGNED)
    limit(at.ctx, "parcels", "weigh", rate="10/m", **SIGNED)
    limit(at.ctx, "parcels", "weigh", "north/1", concurrency=2, **SIGNED)
    page, told = at.call("GET", "/system").raw.decode(), text_of(at, "/system")
    assert 'data-hold="parcels/holds/weigh/north%2F1" data-paused="1"' in page
    assert 'data-limits="parcels/limits/weigh/north%2F1"' in page
    assert "parcels/weigh 16 at a time 10/m by ops" in told
    assert "parcels/weigh/north/1 no limit 2 at a time by ops" in told
    assert "letters/weigh 16 at a time none" in told
    assert "deliver 16" not in told  # nobody of ours works there


def test_a_stage_that_others_do_is_marked_beside_its_route(tmp_path: Path) -> None:
    route = mp.Route("parcels", key="id")
    route.stage("weigh")(lambda item: mp.Done())
    route.stage("wrap", remote=True)
    route.external("deliver")
    with guarded_server(f"sqlite:///{tmp_path}/ledger.db", [route]) as at:
        assert "weigh → wrap remote → deliver external" in text_of(at, "/system")


def test_the_doctor_is_asked_only_when_somebody_asks_for_it(at: GuardedServer) -> None:
    pause(at.ctx, "parcels", None, None, **SIGNED)
    assert "milepost resume parcels" not in text_of(at, "/system")
    assert "milepost resume parcels --by YOU" in text_of(at, "/system?doctor=true")
    # A page that is fetched again for its live parts must stay cheap.
    again = text_of(at, "/system?doctor=true", X_Live="1")
    assert "milepost resume parcels" not in again
    assert not any(
        still in again for still in ("Quarantine", "the same", "lines written", "milepost keys")
    )
    assert "Paused parcels by ops" in again


def test_keys_are_shown_to_admins_without_their_secrets(at: GuardedServer) -> None:
    admin = at.key("admin", name="head state")
    reader = at.key("read", name="reader", routes=["parcels"])
    told = text_of(at, "/system", admin)
    assert "reader read parcels never never" in told
    assert "milepost keys new NAME" in told
    page = at.call("GET", "/system", key=admin).raw.decode()
    assert not any(key.split("_", 2)[2] in page for key in (admin, reader))
    operator = at.key("read", "operate", name="operator")
    assert "milepost keys" not in text_of(at, "/system", operator)


def test_where_nobody_else_writes_the_quarantine_is_one_calm_sentence(at: GuardedServer) -> None:
    assert "The quarantine is empty." in text_of(at, "/system")


def test_what_was_set_aside_on_aws_is_shown_with_its_content(aws_server: LiveServer) -> None:
    store = aws_server.ctx.ledger.store  # type: ignore[attr-defined]
    store.queues.set_aside("row", {"route": "parcels", "row": {"id": MARKUP}}, "it has no input")
    page, told = aws_server.call("GET", "/system").raw.decode(), text_of(aws_server, "/system")
    assert MARKUP not in page
    assert "it has no input" in told
    assert '"id": "' in told
    assert page.count("Replay…") == page.count("Drop…") == 1
    assert "Replay all…" in told


# Who sees what ------------------------------------------------------------------------------------


def test_a_key_for_one_route_sees_nothing_of_another(at: GuardedServer, tmp_path: Path) -> None:
    parked(at, "parcels", "letters")
    some_acts(at)
    limit(at.ctx, "letters", "weigh", rate="10/m", **SIGNED)
    a_process(
        at,
        "alive",
        overrunning=[{"route": "letters", "stage": "weigh", "key": "L-9"}],
        outdated=["letters"],
    )
    part = at.key("read", "operate", "admin", name="part", routes=["parcels"])
    assert at.call("GET", f"/acts/{all_acts(at.ctx, 'letters')[0].id}", key=part).status == 404
    assert at.call("GET", "/events?route=letters", key=part).status == 404
    for path in ("/events", "/acts", "/system", "/system?doctor=true"):
        told = text_of(at, path, part)
        assert "letters" not in told, path
        assert "parcels" in told, path
        assert str(tmp_path) not in told, path
    told = text_of(at, "/system?doctor=true", part)
    for section in ("Ledger", "Keys", "Quarantine", "doctor"):
        assert section not in told
    events = at.call("GET", "/events", key=part).raw.decode()
    assert events.count("data-release") == 1  # its own item, and not all of the subscriber's
    assert "data-replay" not in events
    assert "data-forget" not in events


def test_who_may_only_look_is_offered_nothing_to_do(at: GuardedServer) -> None:
    parked(at, "parcels")
    some_acts(at)
    limit(at.ctx, "parcels", "weigh", rate="10/m", **SIGNED)
    reader = at.key("read")
    offered = (
        "data-release",
        "data-replay",
        "data-forget",
        "data-limit",
        "data-clear",
        "data-hold=",
        "data-aside=",
        "data-go-on",
    )
    for path in ("/events", "/acts", "/acts/first", "/system"):
        page = at.call("GET", path, key=reader).raw.decode()
        assert not [word for word in offered if word in page], path


def test_forgetting_a_subscriber_is_offered_to_admins_alone(at: GuardedServer) -> None:
    parked(at, "parcels")
    operator, admin = at.key("read", "operate", name="operator"), at.key("admin", name="head state")
    assert "data-forget" not in at.call("GET", "/events", key=operator).raw.decode()
    assert "data-forget" in at.call("GET", "/events", key=admin).raw.decode()


def test_how_long_handlers_took_is_shown_for_the_routes_that_one_sees(at: GuardedServer) -> None:
    at.milepost.submit("parcels", {"id": "P-1"}, {"id": "P-2"})
    at.milepost.submit("letters", {"id": "L-1"})
    at.work()
    told = text_of(at, "/system")
    assert "parcels/weigh 2 " in told
    assert "letters/weigh 1 " in told
    reader = at.key("read", routes=["parcels"])
    page = at.call("GET", "/system", key=reader).raw.decode()
    assert "parcels/weigh" in page
    assert "letters/weigh" not in page


def test_spans_are_told_by_the_bounds_that_they_did_not_pass() -> None:
    figures = MetricFigures()
    found = figures.histograms.setdefault("attempt_duration", {}).setdefault(
        ("parcels", "weigh"), Histogram.empty((0.1, 1.0, 60.0))
    )
    for value, n in ((0.05, 10), (0.5, 9), (600.0, 1)):
        found.add(value, n)
    assert durations(figures, ["parcels"]) == [("parcels/weigh", found, None)]
    assert (within(found, 0.5), within(found, 0.95)) == ("100 ms", "1 s")
    assert (
        "10 took up to 100 ms; 9 took up to 1 s; 0 took up to 1 min; 1 took more than 1 min"
        in spread(found)
    )
    found.add(600.0, 10)
    assert within(found, 0.95) == "over 1 min"
    assert durations(figures, ["letters"]) == []
