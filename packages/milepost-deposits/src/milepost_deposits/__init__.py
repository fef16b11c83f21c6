"""Deposits: every DOI of a publisher's master list is deposited once, and people hear which ones
need a manual deposit.

In milepost.toml: applications = ["deposits"], with its settings in [deposits].
"""

from __future__ import annotations

import logging

from milepost_deposits.application import application
from milepost_deposits.people import pages

__all__ = ["application", "pages"]

# Whoever sets up the log of `milepost` has that of this package too.
logging.getLogger(__name__).parent = logging.getLogger("milepost")
