"""The ledger contract: every promise of the design that a ledger is responsible for, as a test.

    from milepost_testing.contract import LedgerContract

    class TestMyLedger(LedgerContract):
        @pytest.fixture
        def ledger(self):
            yield MyLedger()

`another` (a second handle on the same ledger), `make_departed` (a holder that is proved dead),
`damage` (an item that cannot be read), `refused_size` (a row that is too large) and `traces` (where
the storage holds a text) are hooks to override.
"""

from __future__ import annotations

import pytest

_PARTS = ("acts", "forget", "reads", "retention", "work", "world", "writes")
# Before the parts are imported, so that pytest shows the values of a failing assertion.
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in _PARTS))

from milepost_testing.contract.acts.controls import ControlsContract  # noqa: E402
from milepost_testing.contract.acts.partial_answers import PartialAnswersContract  # noqa: E402
from milepost_testing.contract.acts.rename import RenameContract  # noqa: E402
from milepost_testing.contract.acts.verbs import ActsContract  # noqa: E402
from milepost_testing.contract.forget import ForgetContract  # noqa: E402
from milepost_testing.contract.reads.chain import ChainContract  # noqa: E402
from milepost_testing.contract.reads.counters import CountersContract  # noqa: E402
from milepost_testing.contract.reads.feed import FeedContract  # noqa: E402
from milepost_testing.contract.reads.find import FindContract  # noqa: E402
from milepost_testing.contract.reads.lane_counts import LaneCountsContract  # noqa: E402
from milepost_testing.contract.retention import RetentionContract  # noqa: E402
from milepost_testing.contract.work.breakers import BreakersContract  # noqa: E402
from milepost_testing.contract.work.claim import ClaimContract  # noqa: E402
from milepost_testing.contract.work.claim_names import ClaimNamesContract  # noqa: E402
from milepost_testing.contract.work.concurrency import ConcurrencyContract  # noqa: E402
from milepost_testing.contract.work.fences import FencesContract  # noqa: E402
from milepost_testing.contract.work.one_clock import OneClockContract  # noqa: E402
from milepost_testing.contract.work.one_step import OneStepContract  # noqa: E402
from milepost_testing.contract.world import World, sample_route  # noqa: E402
from milepost_testing.contract.writes.changes import ChangesContract  # noqa: E402
from milepost_testing.contract.writes.documents import DocumentsContract  # noqa: E402
from milepost_testing.contract.writes.intake import IntakeContract  # noqa: E402
from milepost_testing.contract.writes.lives import LivesContract  # noqa: E402
from milepost_testing.contract.writes.refused_rows import RefusedRowsContract  # noqa: E402


class LedgerContract(
    IntakeContract,
    ClaimContract,
    ClaimNamesContract,
    FencesContract,
    OneClockContract,
    OneStepContract,
    ChangesContract,
    ActsContract,
    CountersContract,
    ChainContract,
    ControlsContract,
    BreakersContract,
    DocumentsContract,
    FindContract,
    FeedContract,
    LaneCountsContract,
    PartialAnswersContract,
    RetentionContract,
    ForgetContract,
    LivesContract,
    RenameContract,
    RefusedRowsContract,
    ConcurrencyContract,
):
    """All promises together."""


__all__ = ["LedgerContract", "World", "sample_route"]
