"""Test tools for users' own routes and ledgers: virtual clock, simulator, ledger contract, AWS
model.

The contract suite is in `milepost_testing.contract`: only that package needs pytest.
"""

from __future__ import annotations

from milepost_testing.audit import audit, problems
from milepost_testing.clock import SeededChance, VirtualClock
from milepost_testing.drive import assert_item, drain
from milepost_testing.seeded_runner import SimRunner
from milepost_testing.simulator import Simulator

__all__ = [
    "SeededChance",
    "SimRunner",
    "Simulator",
    "VirtualClock",
    "assert_item",
    "audit",
    "drain",
    "problems",
]
