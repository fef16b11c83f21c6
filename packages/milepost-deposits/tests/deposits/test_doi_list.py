"""Lists of DOIs: the column is found by its name and by its content, with any delimiter, with a
header or without."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import milepost as mp
from milepost_deposits.doi import doi_column, parse_input

SICI = "10.1002/(SICI)1096-8644(199605)100:1<19::AID-AJPA3>3.0.CO;2-0"


@pytest.mark.parametrize(
    ("lines", "column"),
    [
        (["10.1/a", "10.1/b"], mp.KeyColumn(0)),
        (["DOI", "10.1/a"], mp.KeyColumn(0, header=True)),
        (["\ufeffdoi", "10.1/a"], mp.KeyColumn(0, header=True)),
        (["Title,DOI,Year", "Foam,10.1/a,2020"], mp.KeyColumn(1, header=True)),
        (
            ["Title;Article DOI", "Foam, at last;https://doi.org/10.1/a"],
            mp.KeyColumn(1, header=True, delimiter=";"),
        ),
        (["title\tdoi", "Foam\t10.1/a"], mp.KeyColumn(1, header=True, delimiter="\t")),
        (["Foam|10.1/a", "Sand|10.1/b"], mp.KeyColumn(1, delimiter="|")),
        (["Foam,10.1/a", "Sand,10.1/b"], mp.KeyColumn(1)),
        (['"Foam, and sand",10.1/a'], mp.KeyColumn(1)),
        (["Related DOI,DOI", "10.1/x,10.1/a", ",10.1/b"], mp.KeyColumn(1, header=True)),
        (["number,article", "1,10.1/a", "2,10.1/b"], mp.KeyColumn(1, header=True)),
        (["DOI"], mp.KeyColumn(0, header=True)),
        (["10.x/broken", "10.1/b"], mp.KeyColumn(0)),
        ([SICI, SICI + "1"], mp.KeyColumn(0)),
        (["DOI;Title", f"{SICI};Foam"], mp.KeyColumn(0, header=True, delimiter=";")),
    ],
)
def test_the_column_with_the_dois_is_found(lines: list[str], column: mp.KeyColumn) -> None:
    assert doi_column(lines) == column


@pytest.mark.parametrize("lines", [["title,year", "Foam,2020"], ["<html>", "<body>"], ["hello"]])
def test_lines_without_a_doi_have_no_column(lines: list[str]) -> None:
    assert doi_column(lines) is None


@given(st.lists(st.text(), min_size=1, max_size=5))
def test_no_text_is_a_fault(lines: list[str]) -> None:
    found = doi_column(lines)
    assert found is None or found.place >= 0


@pytest.mark.parametrize(
    "given", [{}, {"doi": None}, {"doi": 5}, {"doi": ""}, {"doi": "DOI"}, [], "10.1/a", None]
)
def test_an_input_without_a_doi_is_malformed(given: object) -> None:
    with pytest.raises(mp.MalformedInput) as raised:
        parse_input(given)
    assert raised.value.field == "doi"


def test_only_the_doi_is_recorded() -> None:
    assert parse_input({"doi": "doi:10.1/A", "title": "Foam"}) == {"doi": "10.1/a"}
