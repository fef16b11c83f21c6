"""Routes that read lists of others: the one column that holds the keys, and one item however its
key is written."""

from __future__ import annotations

import io

import pytest

import milepost as mp


def column(lines: list[str]) -> mp.KeyColumn | None:
    """The second of the columns that '|' separates, below a header."""
    return mp.KeyColumn(1, header=True, delimiter="|") if "|" in lines[0] else None


def parse(given: dict[str, str]) -> dict[str, str]:
    text = given["id"].strip().lower()
    if not text:
        raise mp.MalformedInput("it is empty", field="id")
    return {"id": text, "length": str(len(text))}


def parcels() -> mp.Route:
    route = mp.Route("parcels", key="id", parse=parse, key_column=column)
    route.external("weigh")
    return route


@pytest.mark.parametrize("name", ["list.csv", "LIST.TXT"])
def test_only_the_column_of_the_keys_is_read(name: str) -> None:
    lines = b'name|number\n\nbox|A\nbox|"b"|more|and more\n"two\nlines"|C\nbox\nbox|\nbag|a\n'
    with mp.open("memory:", routes=[parcels()]) as ledger:
        report = ledger.submit_list("parcels", io.BytesIO(lines), name=name)
        assert sorted(row["key"] for row in ledger.items("parcels")) == ["a", "b", "c"]
        assert {bad.line: bad.reason for bad in report.malformed} == {
            7: "it has 1 columns; 'id' is in column 2",
            8: "it is empty",
        }
        assert report.counts["new"] == 3
        assert report.counts["repeated"] == 1
        assert report.notes == ["'id' is in column 2"]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
def test_another_encoding_matters_only_in_the_column_of_the_keys(encoding: str) -> None:
    lines = 'name|number\r\nM\xfcll|A\r\n"Caf\xe9\r\nau lait"|B|na\xefve\r\nbox|C\r\nbox|\xfc\r\n'.encode(
        encoding
    )
    with mp.open("memory:", routes=[parcels()]) as ledger:
        report = ledger.submit_list("parcels", io.BytesIO(lines), name="list.csv")
        assert sorted(row["key"] for row in ledger.items("parcels")) == ["a", "b", "c"]
        assert {bad.line: bad.reason for bad in report.malformed} == {
            6: "'id' is not UTF-8; save the list as UTF-8, and submit it again",
        }


def test_a_long_list_is_read_in_slices() -> None:
    lines = "".join(f"box|K{n}\n" for n in range(5_000))
    with mp.open("memory:", routes=[parcels()]) as ledger:
        report = ledger.submit_list(
            "parcels", io.BytesIO(f"name|number\n{lines}".encode()), name="list.csv"
        )
        assert report.counts["new"] == 5_000


def test_a_list_without_the_column_is_refused_whole() -> None:
    with mp.open("memory:", routes=[parcels()]) as ledger:
        for content, seen in (
            (b"\na,b\nc,d\n", "its first 2 lines have none; line 2 is 'a,b'"),
            (b"a,b\n", "its only line is 'a,b'"),
        ):
            with pytest.raises(mp.UsageError) as refused:
                ledger.submit_list("parcels", io.BytesIO(content), name="list.csv")
            assert str(refused.value) == (
                f"list.csv: no column holds 'id', the key of route 'parcels': {seen}. Add a column 'id' with one value on each line, and"
                " deliver the file again"
            )
        assert ledger.items("parcels") == []


def test_a_stream_needs_a_name() -> None:
    with (
        mp.open("memory:", routes=[parcels()]) as ledger,
        pytest.raises(mp.UsageError, match="give the name"),
    ):
        ledger.submit_list("parcels", io.BytesIO(b""))


def test_an_input_is_parsed_wherever_it_comes_from() -> None:
    with mp.open("memory:", routes=[parcels()]) as ledger:
        answers = [
            receipt.answer
            for receipt in ledger.submit(
                "parcels", {"id": " A "}, {"id": "a"}, {"id": " "}, {"id": "b"}, {}
            )
        ]
        assert answers == ["new", "known", "malformed", "new", "malformed"]
        shown = ledger.show("parcels", "a")
        assert shown is not None
        assert shown["input"] == {"id": "a", "length": "1"}


def test_a_parse_function_that_fails_makes_the_line_malformed() -> None:
    route = mp.Route("parcels", key="id", parse=lambda given: {"id": given["nothing"]})
    route.external("weigh")
    with mp.open("memory:", routes=[route]) as ledger:
        [receipt] = ledger.submit("parcels", {"id": "a"})
        assert receipt.answer == "malformed"
        assert "parse function failed" in receipt.error


def test_inputs_are_parsed_at_once_where_that_is_possible() -> None:
    asked: list[int] = []

    def parse_keys(texts: list[str]) -> list[str] | None:
        asked.append(len(texts))
        return None if "odd" in texts else [text.upper() for text in texts]

    route = mp.Route(
        "parcels",
        key="id",
        parse=lambda given: {"id": str(given["id"]).upper()},
        parse_keys=parse_keys,
    )
    route.external("weigh")
    with mp.open("memory:", routes=[route]) as ledger:
        ledger.submit("parcels", {"id": "a"}, {"id": "b"})
        ledger.submit("parcels", {"id": "odd"})
        ledger.submit("parcels", {"id": 7})
        assert sorted(row["key"] for row in ledger.items("parcels")) == ["7", "A", "B", "ODD"]
        assert asked == [2, 1]
        asked.clear()
        many = [{"id": f"k{number}"} for number in range(249)]
        receipts = ledger.submit("parcels", *many, {"id": "odd"})
        assert [receipt.answer for receipt in receipts] == ["new"] * 249 + ["known"]
    assert asked == [250, 100, 100, 50]


def test_mistakes_are_named_where_the_route_is_declared() -> None:
    with pytest.raises(mp.RouteMistake, match="key_column finds a key of one field"):
        mp.Route("parcels", key=["a", "b"], key_column=column)
    with pytest.raises(mp.RouteMistake, match="give parse, too"):
        mp.Route("parcels", parse_keys=lambda texts: texts)
    with pytest.raises(mp.RouteMistake, match="parse"):
        mp.Route("parcels", parse=lambda: None)  # type: ignore[arg-type, misc]
