"""The tree of RFC 6962."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.evidence.merkle import EMPTY, climb, leaf, levels, node, path, root

LEAVES = [
    "",
    "00",
    "10",
    "2021",
    "3031",
    "40414243",
    "5051525354555657",
    "606162636465666768696a6b6c6d6e6f",
]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]

digests = st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=70)


@pytest.mark.parametrize("count", range(1, 9))
def test_roots_are_those_that_certificate_transparency_publishes(count: int) -> None:
    assert root([leaf(bytes.fromhex(text)) for text in LEAVES[:count]]).hex() == ROOTS[count - 1]
    assert root([]) == EMPTY


@given(digests, st.data())
def test_a_path_leads_from_its_leaf_to_the_root_and_from_no_other(
    leaves: list[bytes], data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, len(leaves) - 1))
    steps = path(levels(leaves), index)
    assert climb(leaves[index], steps) == root(leaves)
    assert climb(leaf(leaves[index]), steps) != root(leaves)


@given(digests, st.sampled_from([1, 2, 4, 8]))
def test_the_roots_of_aligned_parts_are_nodes_of_the_whole_tree(
    leaves: list[bytes], size: int
) -> None:
    parts = [leaves[start : start + size] for start in range(0, len(leaves), size)]
    roots = [root(part) for part in parts]
    assert root(roots) == root(leaves)
    for number, part in enumerate(parts):
        steps = [*path(levels(part), len(part) - 1), *path(levels(roots), number)]
        assert climb(part[-1], steps) == root(leaves)


def test_doubling_the_last_leaf_gives_another_root() -> None:
    a, b, c = (leaf(text) for text in (b"a", b"b", b"c"))
    assert root([a, b, c]) != root([a, b, c, c])
    assert leaf(a + b) != node(a, b), "a node is never taken for a leaf"
    with pytest.raises(ValueError, match="neither 'left' nor 'right'"):
        climb(a, [("above", b)])
