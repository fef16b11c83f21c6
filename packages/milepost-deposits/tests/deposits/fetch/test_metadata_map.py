"""Mapping of Crossref's records: the table of the real system, and never the text "None"."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost_deposits.fetch.metadata import (
    TABLE,
    MetadataField,
    map_record,
    missing_parts,
    plain_record,
    plain_text,
    table_of,
    title_of,
    to_json,
)

URL = "http://dx.doi.org/10.1/x"
FULL: dict[str, Any] = {
    "indexed": {"date-parts": [[2026, 1, 1]]},
    "publisher": "Example Press",
    "issue": "4",
    "DOI": "10.1/x",
    "title": ["Foam at low gravity"],
    "volume": "12",
    "author": [{"given": f"G{n}", "family": f"F{n}", "affiliation": []} for n in range(11)],
    "container-title": ["Journal of Foam"],
    "original-title": ["Schaum"],
    "language": "en",
    "issued": {"date-parts": [[2020, 9, 30]]},
    "short-title": ["Foam"],
    "subtitle": ["A study", "In two parts"],
    "ISSN": ["1234-5678", "8765-4321"],
    "URL": URL,
}


def pairs(record: dict[str, Any]) -> list[tuple[str, str]]:
    return [(field.key, field.value) for field in map_record(record)]


def values(record: dict[str, Any], key: str) -> list[str]:
    return [value for found, value in pairs(record) if found == key]


def test_title_and_url_alone_make_two_fields() -> None:
    assert pairs({"title": ["T"], "URL": URL}) == [
        ("dc.title", "T"),
        ("dc.relation.isversionof", URL),
    ]


def test_a_full_record_is_mapped_in_its_own_order() -> None:
    assert pairs(FULL) == [
        ("dc.publisher", "Example Press"),
        ("mit.journal.issue", "4"),
        ("dc.title", "Foam at low gravity"),
        ("mit.journal.volume", "12"),
        *[("dc.contributor.author", f"F{n}, G{n}") for n in range(11)],
        ("dc.relation.journal", "Journal of Foam"),
        ("dc.title.alternative", "Schaum"),
        ("dc.language", "en"),
        ("dc.date.issued", "2020-09-30"),
        ("dc.title.alternative", "Foam"),
        ("dc.title.alternative", "A study"),
        ("dc.title.alternative", "In two parts"),
        ("dc.identifier.issn", "1234-5678"),
        ("dc.identifier.issn", "8765-4321"),
        ("dc.relation.isversionof", URL),
    ]


def test_the_parts_of_a_title_are_joined() -> None:
    assert values({"title": ["A", "B"]}, "dc.title") == ["A. B"]
    assert values({"title": "A bare text"}, "dc.title") == ["A bare text"]
    assert title_of({"title": ["A", None, "", "B"]}) == "A. B"


@pytest.mark.parametrize(
    ("parts", "date"),
    [
        ([[2020, 9, 30]], ["2020-09-30"]), ([[2021, 3]], ["2021-03"]), ([[2021]], ["2021"]), ([[None]], []), ([[]], []), ([], []), (None, []),
        ([[2021, None, 5]], ["2021"]), ([[2021, 13]], ["2021"]), ([["2021", "3"]], ["2021-03"]), ([[True]], []), ([2021], []),
    ],
)  # fmt: skip
def test_dates_have_the_parts_that_are_known(parts: Any, date: list[str]) -> None:
    assert values({"issued": {"date-parts": parts}}, "dc.date.issued") == date


@pytest.mark.parametrize(
    ("author", "name"),
    [
        ({"family": "Smith", "given": "Jo"}, ["Smith, Jo"]), ({"family": "Smith"}, ["Smith"]), ({"given": "Jo"}, ["Jo"]),
        ({"name": "The Foam Group"}, ["The Foam Group"]), ({"family": None, "given": None, "name": "Group"}, ["Group"]), ({}, []),
        ({"family": " ", "given": ""}, []), (None, []), ({"family": "Smith", "given": None}, ["Smith"]),
    ],
)  # fmt: skip
def test_an_author_is_a_person_or_a_group_and_never_none(author: Any, name: list[str]) -> None:
    assert values({"author": [author]}, "dc.contributor.author") == name


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"title": []},
        {"title": None},
        {"title": [""]},
        {"title": [None], "URL": None},
        {"issued": {}},
    ],
)
def test_a_record_without_title_or_url_is_insufficient(record: dict[str, Any]) -> None:
    assert missing_parts(record) == ["title", "URL"]
    assert pairs(record) == []


def test_line_breaks_within_a_title_become_spaces() -> None:
    assert values({"title": ["Foam\n   at low\tgravity\x00"]}, "dc.title") == [
        "Foam at low gravity"
    ]


def test_the_mapping_is_configuration() -> None:
    table = table_of(
        {
            "volume": "",
            "issue": "dc.issue",
            "published-online": "dc.date.available",
            "editor": "dc.contributor.editor",
        }
    )
    record = {
        "volume": "1", "issue": 2, "editor": [{"family": "Lind"}], "published-online": {"date-parts": [[2020]]}, "title": ["T"],
    }  # fmt: skip
    assert [(field.key, field.value) for field in map_record(record, table)] == [
        ("dc.issue", "2"),
        ("dc.contributor.editor", "Lind"),
        ("dc.date.available", "2020"),
        ("dc.title", "T"),
    ]


def test_both_forms_of_the_file_hold_the_same() -> None:
    fields = [MetadataField("dc.title", "T"), MetadataField("a", "1"), MetadataField("a", "2")]
    assert to_json(fields, "old") == {
        "metadata": [
            {"key": "dc.title", "value": "T"},
            {"key": "a", "value": "1"},
            {"key": "a", "value": "2"},
        ]
    }
    assert to_json(fields, "dspace8") == {
        "dc.title": [{"value": "T"}],
        "a": [{"value": "1"}, {"value": "2"}],
    }


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["family", "given", "name", "date-parts", "x"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*TABLE, "DOI", "type"]), json_values, max_size=8))
def test_any_record_is_mapped_without_fault_and_without_inventing_a_value(
    record: dict[str, Any],
) -> None:
    for field in map_record(record):
        assert field.key in TABLE.values()
        assert field.value == field.value.strip() != ""
        assert field.value.isprintable() or not any(ord(letter) < 32 for letter in field.value)
        assert "None" not in field.value or any("None" in text for text in _texts(record))
    assert set(missing_parts(record)) <= {"title", "URL"}


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for one in inner for text in _texts(one)]


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("On H<sub>2</sub>O &amp; <i>Pinus</i>", "On H2O & Pinus"),
        ("G3&amp;#58; Genes|Genomes|Genetics", "G3: Genes|Genomes|Genetics"),
        ("<jats:p>Foam is <jats:italic>wet</jats:italic>.</jats:p>", "Foam is wet."),
        (
            '<mml:math xmlns:mml="http://www.w3.org/1998/Math/MathML"><mml:mi>x</mml:mi></mml:math>',
            "x",
        ),
        ("p < 0.05 and a<b", "p < 0.05 and a<b"),
        ("1 &lt; 2", "1 < 2"),
        ("plain", "plain"),
    ],
)
def test_markup_is_stripped_to_its_text(text: str, plain: str) -> None:
    assert plain_text(text) == plain


def test_markup_is_kept_unless_the_settings_strip_it() -> None:
    record = {
        "title": ["On <i>Pinus</i>"],
        "URL": "https://doi.org/10.1/a&amp;b",
        "author": [{"family": "O&apos;Neil", "given": "A"}],
    }
    assert map_record(record)[0].value == "On <i>Pinus</i>"
    assert [field.value for field in map_record(plain_record(record))] == [
        "On Pinus",
        "https://doi.org/10.1/a&amp;b",
        "O'Neil, A",
    ]
