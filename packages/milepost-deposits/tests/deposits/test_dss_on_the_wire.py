"""Rounds through the submission service with SQS over HTTP: commands as cron runs them, and the
service between two of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import standins
from tests.cli.command_processes import command_processes
from tests.cli.commands import Answer
from tests.deposits.test_deposits_settings import SAMPLE

from milepost_deposits.standins.dspace import PASSWORD, USER, DSpaceStandIn
from milepost_deposits.standins.dss import DssStandIn
from milepost_deposits.standins.sources import CrossrefStandIn, PublisherStandIn

pytestmark = pytest.mark.wire


@pytest.fixture
def dspace() -> Iterator[DSpaceStandIn]:
    with DSpaceStandIn() as standin:
        yield standin


def test_a_round_hands_over_and_the_next_one_applies_the_results(
    tmp_path: Path,
    crossref: CrossrefStandIn,
    publisher: PublisherStandIn,
    dspace: DSpaceStandIn,
    account: str,
    endpoint: str,
    client: Callable[[str], Any],
) -> None:
    crossref.everything = publisher.everything = True
    sqs = client("sqs")
    urls = {
        name: sqs.create_queue(QueueName=name)["QueueUrl"] for name in ("dss-input", "dss-output")
    }
    service = DssStandIn(
        sqs, urls["dss-input"], ("dss-output",), dspace, lambda place: Path(place).read_bytes()
    )
    service.script["10.1002/b"] = ["refused"]
    (tmp_path / "milepost.toml").write_text(_config(crossref, publisher, dspace))
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "march.csv").write_text("10.1002/a\n10.1002/b\n")
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MILEPOST", "AWS_"))
    }
    env |= {
        **standins.environment(account),
        "AWS_ENDPOINT_URL": endpoint,
        "DSPACE_USER": USER,
        "DSPACE_PASSWORD": PASSWORD,
    }

    def milepost(*words: str) -> Answer:
        return command_processes().run(["deposits", *words], tmp_path, env, None, timeout=120)

    first = milepost("run")
    assert first.code == 0, first
    assert milepost("status", "--json").json["Processing"] == 2
    assert service.run()
    assert sorted(service.received) == ["10.1002/a", "10.1002/b"]
    second = milepost("run")
    assert second.code == 0, second
    assert "tried again: 1" in second.out
    assert service.run()
    applied = milepost("results")
    assert (applied.code, applied.out) == (
        0,
        "1 results: 1 deposited, 0 failed, 0 late, 0 set aside, 0 left in the queue\n",
    )
    assert milepost("status", "--json").json["Success"] == 2
    assert [len(dspace.having(doi)) for doi in ("10.1002/a", "10.1002/b")] == [1, 1]


def _config(crossref: CrossrefStandIn, publisher: PublisherStandIn, dspace: DSpaceStandIn) -> str:
    dss = '{ queue = "dss-input", results = "dss-output", system = "DSpace@MIT", source = "wiley" }'
    text = f'applications = ["deposits"]\n{SAMPLE}'.replace(
        'dspace = "http://127.0.0.1:9103/server"', f'dss = {dss}\nsearch = "{dspace.url}"'
    )
    for port, origin in {"9101": crossref.origin, "9102": publisher.origin}.items():
        text = text.replace(f"http://127.0.0.1:{port}", origin)
    # No mail server is part of this test, and a digest that cannot be mailed is something for
    # people: exit 1.
    text = text.partition("[deposits.mail]")[0]
    return text.replace('inbox = "inbox"', 'inbox = "inbox"\ninbox_quiet = "0s"')
