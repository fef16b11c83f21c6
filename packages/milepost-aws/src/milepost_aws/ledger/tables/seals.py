"""Seals as stored in the table `seen`."""

from __future__ import annotations

from milepost.core.status import Status
from milepost.ports.items import KnownKey
from milepost_aws.ledger.names import ms, unb64
from milepost_aws.ledger.tables.keys import FULL_KEY, Image


def seal_of(image: Image, route: str) -> KnownKey:
    """The seal in this image of the route's key."""
    return KnownKey(
        image[FULL_KEY]["S"] if FULL_KEY in image else image["key"]["S"].removeprefix(f"{route}/"),
        Status(image["status"]["S"]),
        unb64(image["inputDigest"]["S"]),
        image["queue"]["S"],
        image["listId"]["S"] if "listId" in image else None,
        True,
        ms(image["endedAt"]["S"]),
        unb64(image["head"]["S"]),
        unb64(image["contentDigest"]["S"]) if "contentDigest" in image else None,
        int(image["life"]["N"]) if "life" in image else 0,
    )
