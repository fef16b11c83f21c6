"""The ledger of a URL dynamodb://REGION/PREFIX, with its blob store."""

from __future__ import annotations

import os

from milepost.blobs.addresses import open_blobs
from milepost.ports.blobs import Blobs
from milepost.ports.extensions import LedgerScheme
from milepost.ports.ledger import Ledger


def open_dynamodb(url: str, *, make: bool = True) -> tuple[Ledger, Blobs]:
    """The ledger and its blob store. Without `make`, a missing ledger raises LedgerMissing."""
    from milepost_aws.ledger.ledger import AwsLedger, parse
    from milepost_aws.ledger.requests.client import CALL

    address = parse(url)
    own_folder = f"{address.prefix}-blobs" if address.endpoint else None
    blobs = open_blobs(
        address.blobs or os.environ.get("MILEPOST_BLOBS") or own_folder,
        address.region,
        address.endpoint,
        CALL.left,
    )
    return AwsLedger.open(address, blobs, make=make), blobs


SCHEME = LedgerScheme(open_dynamodb, "dynamodb://REGION/PREFIX", stage_queues=True)
