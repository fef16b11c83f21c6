"""How far an asset has come when a test of the state-change handler begins."""

from __future__ import annotations

import json

from tests.postingest.aws_scene import ASSET, INPUT, PATHS, VOLUMES, Postingest, text

PAYLOAD = json.loads(INPUT)


def in_cc(post: Postingest, asset: str = ASSET) -> None:
    """An asset that has been offered to the first confirmer, who has taken its message."""
    post.put(asset)
    post.follow()
    assert post.at(asset) == ("CC", "QUEUED")
    post.received("CC")


def in_scout(post: Postingest, asset: str = ASSET) -> None:
    in_cc(post, asset)
    post.confirm("CC", text(PATHS), asset)
    post.follow()
    assert post.at(asset) == ("Scout", "QUEUED")
    post.received("Scout")


def ended(post: Postingest, asset: str = ASSET) -> None:
    in_scout(post, asset)
    post.confirm("Scout", text(VOLUMES), asset)
    post.follow()
    assert post.at(asset) == ("Scout", "COMPLETED")
