"""The route and kind of a delivered list, from its place in the bucket."""

from __future__ import annotations

import pytest

from milepost_aws.lambdas.lists import ListObject, place_of


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("lists/parcels/a.csv", ListObject("parcels", "a.csv", False)),
        ("lists/parcels/full/a.csv", ListObject("parcels", "a.csv", True)),
        ("lists/parcels/no-header/a.csv", ListObject("parcels", "a.csv", False, True)),
        ("lists/parcels/full/no-header/b/a.csv", ListObject("parcels", "b/a.csv", True, True)),
        ("lists/parcels/no-header", ListObject("parcels", "no-header", False)),
    ],
)
def test_a_place_names_route_and_title_and_how_the_list_is_read(
    key: str, place: ListObject
) -> None:
    assert place_of(key) == place
