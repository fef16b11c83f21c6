"""The ledger contract: every promise of the design that a ledger is responsible for, as a test.

    from milepost.testing.contract import LedgerContract

    class TestMyLedger(LedgerContract):
        @pytest.fixture
        def ledger(self):
            yield MyLedger()

`another` (a second handle on the same ledger), `make_departed` (a holder that is proved dead), `damage` (an item that cannot be read)
and `refused_size` (a row that is too large) are hooks to override.
"""

from __future__ import annotations

import pytest

_PARTS = (
    "acting", "adding", "applying", "chain", "claiming", "claims", "concurrency", "counting", "documents", "feeding", "fencing", "finding", "holding", "lives", "one_step",
    "partial_answers", "pruning", "refusing", "renaming", "world",
)  # fmt: skip
# Before the parts are imported, so that a failing promise shows its values.
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in _PARTS))

from milepost.testing.contract.acts.controls import Holding
from milepost.testing.contract.acts.far_reaching import Acting
from milepost.testing.contract.acts.partial_answers import PartialAnswers
from milepost.testing.contract.acts.rename import Renaming
from milepost.testing.contract.reads.chain import Chain
from milepost.testing.contract.reads.counters import Counting
from milepost.testing.contract.reads.feed import Feeding
from milepost.testing.contract.reads.find import Finding
from milepost.testing.contract.retention import Pruning
from milepost.testing.contract.work.claim import Claiming
from milepost.testing.contract.work.claim_names import Claims
from milepost.testing.contract.work.concurrency import Concurrency
from milepost.testing.contract.work.fences import Fencing
from milepost.testing.contract.work.one_step import OneStep
from milepost.testing.contract.world import World, sample_route  # noqa: E402
from milepost.testing.contract.writes.changes import Applying
from milepost.testing.contract.writes.documents import Documents
from milepost.testing.contract.writes.intake import Adding
from milepost.testing.contract.writes.lives import Lives
from milepost.testing.contract.writes.refused_rows import Refusing


class LedgerContract(
    Adding,
    Claiming,
    Claims,
    Fencing,
    OneStep,
    Applying,
    Acting,
    Counting,
    Chain,
    Holding,
    Documents,
    Finding,
    Feeding,
    PartialAnswers,
    Pruning,
    Lives,
    Renaming,
    Refusing,
    Concurrency,
):
    """All promises together."""


__all__ = ["LedgerContract", "World", "sample_route"]
