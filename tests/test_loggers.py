"""The logs of all packages belong to the logger `milepost`."""

from __future__ import annotations

import logging

import pytest

import milepost_aws.ledger.relay
import milepost_deposits.rounds
import milepost_notifications.deliver
import milepost_postingest.tape

LOGGERS = [
    milepost_aws.ledger.relay.log,
    milepost_deposits.rounds.log,
    milepost_notifications.deliver.log,
    milepost_postingest.tape.log,
]


@pytest.mark.parametrize("log", LOGGERS, ids=lambda log: log.name)
def test_whoever_sets_up_milepost_has_the_log_of_each_package(log: logging.Logger) -> None:
    names = []
    above: logging.Logger | None = log
    while above is not None:
        names.append(above.name)
        above = above.parent
    assert "milepost" in names
