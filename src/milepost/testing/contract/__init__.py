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

from milepost.testing.contract.acting import Acting  # noqa: E402
from milepost.testing.contract.adding import Adding  # noqa: E402
from milepost.testing.contract.applying import Applying  # noqa: E402
from milepost.testing.contract.chain import Chain  # noqa: E402
from milepost.testing.contract.claiming import Claiming  # noqa: E402
from milepost.testing.contract.claims import Claims  # noqa: E402
from milepost.testing.contract.concurrency import Concurrency  # noqa: E402
from milepost.testing.contract.counting import Counting  # noqa: E402
from milepost.testing.contract.documents import Documents  # noqa: E402
from milepost.testing.contract.feeding import Feeding  # noqa: E402
from milepost.testing.contract.fencing import Fencing  # noqa: E402
from milepost.testing.contract.finding import Finding  # noqa: E402
from milepost.testing.contract.holding import Holding  # noqa: E402
from milepost.testing.contract.lives import Lives  # noqa: E402
from milepost.testing.contract.one_step import OneStep  # noqa: E402
from milepost.testing.contract.partial_answers import PartialAnswers  # noqa: E402
from milepost.testing.contract.pruning import Pruning  # noqa: E402
from milepost.testing.contract.refusing import Refusing  # noqa: E402
from milepost.testing.contract.renaming import Renaming  # noqa: E402
from milepost.testing.contract.world import World, sample_route  # noqa: E402


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
