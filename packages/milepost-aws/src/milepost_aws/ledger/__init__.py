"""The ledger on AWS: rows in DynamoDB, messages for due items in SQS, events through SNS."""

from __future__ import annotations

import logging

# Whoever sets up the log of `milepost` has that of this package too.
logging.getLogger(__name__).parent = logging.getLogger("milepost")
