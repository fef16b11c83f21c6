"""The functions go on when DynamoDB refuses one row: it is that item's counted failure."""

from __future__ import annotations

from pathlib import Path

from tests.aws.lambdas.deployment import HEAD, Countdown, deployments
from tests.aws.ledger.synchronous_ledger import fill_row

from milepost.core.decide import NOTE_LIMIT
from milepost.core.status import Status

SOURCE = (
    HEAD
    + """
parcels = mp.Route("parcels", key="id")

@parcels.stage("weigh")
def weigh(item: mp.Item) -> mp.Outcome:
    seen.append(item.key)
    return mp.NotYet(after="1h", note="x" * 450_000) if item.key == "wordy" else mp.Done()
"""
)


def test_a_long_note_and_a_full_row_stop_neither_the_worker_nor_the_relay(
    endpoint: str, prefix: str, tmp_path: Path
) -> None:
    with deployments(endpoint, prefix, tmp_path) as deploy:
        deployed = deploy(SOURCE)
        deployed.queues = {"weigh": deployed.queue("weigh", lambda: Countdown(4000))}
        deployed.submit("wordy", "full", "good")
        deployed.stream.poll()
        store = deployed.opened.ledger.store
        fill_row(store, "parcels", "full", "note")
        for _ in range(3):
            deployed.stream.poll()
            deployed.queues["weigh"].poll()
        deployed.stream.poll()
        assert deployed.row("good").status is Status.COMPLETED
        wordy, full = deployed.row("wordy"), deployed.row("full")
        assert (wordy.status, len(wordy.note or "")) == (Status.WAITING, NOTE_LIMIT)
        assert deployed.module.seen.count("wordy") == 1
        assert full.status in (Status.RETRY_SCHEDULED, Status.COMPLETED), (
            "it is tried again, without the note"
        )
        assert full.total_attempts == 1
