"""Every partner fails in every documented way, at random. In the end each DOI is deposited once, or
people are to deposit it by hand."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.deposits.submit_scene import DSS, SubmitScene, submit_scene

from milepost_deposits.acts import FAILED, requeue
from milepost_deposits.controls import end_waits
from milepost_deposits.standins.dss import Behaviour
from milepost_deposits.standins.sources import CrossrefStandIn, PublisherStandIn, small_pdf
from milepost_deposits.stuck import find_late_deposits
from milepost_testing import audit

SIZES = {"sqlite": (25, 30), "aws": (6, 8)}
"""How many DOIs, and how many steps with faults."""
BEHAVIOURS: tuple[Behaviour, ...] = get_args(Behaviour)

DSPACE_FAULTS: list[dict[str, Any]] = [
    {"kind": kind, "where": where, "acted": acted}
    for where in (
        "POST */core/items", "POST */bundles", "POST */bitstreams", "PATCH *", "DELETE *", "GET */discover/*", "GET */pid/find", "POST */login",
    )
    for kind in ("status", "reset", "cut", "html", "garbage")
    for acted in ((True, False) if where.startswith(("POST", "PATCH", "DELETE")) else (False,))
] + [
    {"kind": "status", "status": status, "where": where}
    for where in ("POST */core/items", "POST */bitstreams", "GET */discover/*")
    for status in (400, 401, 403, 422, 429, 502, 504)
]  # fmt: skip
CROSSREF_FAULTS: list[dict[str, Any]] = [
    {"kind": "status", "status": status} for status in (404, 500, 503)
] + [{"kind": kind} for kind in ("garbage", "html", "cut", "reset")]  # fmt: skip
PUBLISHER_FAULTS: list[dict[str, Any]] = [
    {"kind": "status", "status": status} for status in (403, 404, 500)
] + [{"kind": kind} for kind in ("html", "cut", "reset")]  # fmt: skip


def misbehave(dice: random.Random, standin: Any, faults: list[dict[str, Any]], most: int) -> None:
    """Plan some faults, each for a few requests."""
    standin.mend()
    for fault in dice.sample(faults, dice.randint(0, most)):
        standin.fail(**fault, times=dice.randint(1, 6))


def numbered(count: int) -> list[str]:
    return [f"10.1002/run.{number}" for number in range(count)]


def take_in_some(scene: SubmitScene, dice: random.Random, dois: list[str], step: int) -> None:
    """A list with a few new DOIs, and all that came before."""
    scene.ledger.submit("deposits", *({"doi": doi} for doi in dois[: step * dice.randint(2, 3)]))


def requeue_one(scene: SubmitScene, dice: random.Random) -> None:
    """A person has no patience: what failed a moment ago is tried again at once."""
    rows = scene.ledger.items("deposits", statuses=["RETRY_SCHEDULED", *FAILED], limit=1000)
    # Another file in DSpace is for people to correct: requeued, the DOI is found there as it is.
    rows = [row for row in rows if row["error"]["category"] != "CHECKSUM_MISMATCH"]
    if rows:
        requeue(scene.app, [dice.choice(rows)["key"]], by="ann", reason="at once")


def work_through_pauses(scene: SubmitScene, hours: int) -> None:
    """Work for some hours; a pause whose time has come is ended, as the next round or `milepost up`
    does."""
    for _ in range(hours):
        end_waits(scene.app)
        scene.work("1h")


def check(scene: SubmitScene, dois: list[str]) -> None:
    """No DOI has two items, at any time."""
    for doi in dois:
        # `having` compares exactly: 10.1002/run.1 is not 10.1002/run.11.
        assert len(scene.dspace.having(doi)) <= 1, f"{doi} has a second item"


def check_end(scene: SubmitScene, dois: list[str]) -> None:
    """Each DOI is deposited once with its PDF, or is on the list for people and DSpace has no
    complete item of it."""
    by_hand = {row["key"] for row in scene.ledger.items("deposits", statuses=FAILED, limit=1000)}
    for doi in dois:
        items = scene.dspace.having(doi)
        whole = [
            item
            for item in items
            if item.discoverable and [file.content for file in item.files] == [small_pdf(doi)]
        ]
        if scene.state(doi)[1] == "COMPLETED":
            assert len(items) == len(whole) == 1, doi
        else:
            assert doi in by_hand, f"{doi} is {scene.state(doi)}"
            assert whole == [], f"{doi} is on the list, and in DSpace"
    # A refused answer of the search for late deposits is noted in the history; on AWS its line has
    # a place once the stream is read.
    scene.work()
    context = scene.ledger.context
    assert audit(context.ledger, "deposits", context.plan("deposits")) == len(dois)


def scene_settings(crossref: CrossrefStandIn, publisher: PublisherStandIn) -> dict[str, Any]:
    crossref.everything = publisher.everything = True
    return {"crossref": crossref.url, "content": publisher.template, "whole_route": True}


RUNS = [
    ("sqlite", 1),
    ("sqlite", 2),
    pytest.param("aws", 1, marks=pytest.mark.slow),
    *(pytest.param("sqlite", seed, marks=pytest.mark.thorough) for seed in range(3, 20)),
]


@pytest.mark.parametrize(("kind", "seed"), RUNS)
def test_direct_deposits(
    tmp_path: Path, crossref: CrossrefStandIn, publisher: PublisherStandIn, kind: str, seed: int
) -> None:
    dice, (count, steps) = random.Random(seed), SIZES[kind]
    dois = numbered(count)
    with submit_scene(tmp_path, kind, **scene_settings(crossref, publisher)) as scene:
        scene.dspace.index_lag = 100
        for step in range(1, steps + 1):
            take_in_some(scene, dice, dois, step)
            misbehave(dice, crossref, CROSSREF_FAULTS, 2)
            misbehave(dice, publisher, PUBLISHER_FAULTS, 2)
            misbehave(dice, scene.dspace, DSPACE_FAULTS, 6)
            requeue_one(scene, dice)
            scene.work(dice.choice(["1m", "10m", "1h"]))
            check(scene, dois)
        for standin in (crossref, publisher, scene.dspace):
            standin.mend()
        scene.ledger.submit("deposits", *({"doi": doi} for doi in dois))
        work_through_pauses(scene, 20)
        find_late_deposits(scene.app, scene.submission.dspace)
        check_end(scene, dois)


@pytest.mark.parametrize(("kind", "seed"), RUNS)
def test_deposits_through_the_service(
    tmp_path: Path, crossref: CrossrefStandIn, publisher: PublisherStandIn, kind: str, seed: int
) -> None:
    dice, (count, steps) = random.Random(seed), SIZES[kind]
    dois = numbered(count)
    with submit_scene(tmp_path, kind, dss=DSS, **scene_settings(crossref, publisher)) as scene:
        # A message that the service died with is dropped by its queue before it is seen again: else
        # the service itself makes two items.
        scene.service.visibility_s = 12 * 3600
        for doi in dois:
            scene.plan(doi, *dice.choices(BEHAVIOURS, k=4))
        for step in range(1, steps + 1):
            take_in_some(scene, dice, dois, step)
            misbehave(
                dice,
                scene.dspace,
                [fault for fault in DSPACE_FAULTS if fault["where"].startswith("GET")],
                2,
            )
            if dice.random() < 0.7:
                scene.service.run()
            scene.apply()
            requeue_one(scene, dice)
            scene.work(dice.choice(["1m", "10m", "1h"]))
            check(scene, dois)
        scene.dspace.mend()
        scene.ledger.submit("deposits", *({"doi": doi} for doi in dois))
        for _ in range(12):
            work_through_pauses(scene, 3)
            scene.service.run()
            scene.apply()
        find_late_deposits(scene.app, scene.submission.dspace)
        check_end(scene, dois)
