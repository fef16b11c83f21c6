"""Test tools for users' own routes and ledgers: virtual clock, simulator, ledger contract, AWS model.

The contract suite is in `milepost.testing.contract`: only that package needs pytest.
"""

from __future__ import annotations

from milepost.testing.audit import audit, problems
from milepost.testing.clock import SeededChance, VirtualClock
from milepost.testing.drive import assert_item, drain
from milepost.testing.seeded_runner import SimRunner
from milepost.testing.simulator import Simulator

__all__ = ["SeededChance", "SimRunner", "Simulator", "VirtualClock", "assert_item", "audit", "drain", "problems"]
