"""The forms of a list: each line is read as it was meant, or set aside with its number; nothing
stops the others."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from milepost.core.errors import UsageError
from milepost.core.routes.route import Route
from milepost.engine.lists import formats, source
from milepost.engine.lists.formats import BadLine, read_batches
from milepost.engine.lists.source import Source


def read(
    data: bytes,
    format: str | None = None,
    *,
    key: Any = "id",
    name: str = "list",
    no_header: bool = False,
) -> tuple[dict[int, Any], list[BadLine]]:
    """Inputs by line number, and bad lines."""
    inputs: dict[int, Any] = {}
    bad: list[BadLine] = []
    slices = Source(io.BytesIO(data), name).slices()
    for batch in read_batches(slices, name, Route("parcels", key=key), format, no_header=no_header):
        assert len(batch.numbers) == len(batch.inputs) == len(batch.raw)
        inputs.update(zip(batch.numbers, batch.inputs, strict=True))
        bad += batch.bad
    return inputs, bad


def lines_of(bad: list[BadLine]) -> list[int]:
    return [each.line for each in bad]


# txt


def test_txt_is_a_key_a_line() -> None:
    assert read(b"a\n  b c \n\n# a comment\n#another\nd", "txt") == (
        {1: {"id": "a"}, 2: {"id": "b c"}, 6: {"id": "d"}},
        [],
    )


def test_txt_for_a_key_function_has_the_line_as_value() -> None:
    assert read(b"a\n", "txt", key=lambda content: content["value"])[0] == {1: {"value": "a"}}


def test_txt_cannot_hold_a_key_of_several_fields() -> None:
    with pytest.raises(UsageError, match=r"batch \+ asset; use csv or jsonl"):
        read(b"a\n", "txt", key=["batch", "asset"])


def test_bom_and_crlf_in_every_format() -> None:
    bom = b"\xef\xbb\xbf"
    assert read(bom + b"a\r\nb\r\n", "txt")[0] == {1: {"id": "a"}, 2: {"id": "b"}}
    assert read(bom + b"id,n\r\na,1\r\n\r\nb,2\r\n", "csv")[0] == {
        2: {"id": "a", "n": "1"},
        4: {"id": "b", "n": "2"},
    }
    assert read(bom + b'{"id":"a"}\r\n\r\n{"id":"b"}\r\n', "jsonl")[0] == {
        1: {"id": "a"},
        3: {"id": "b"},
    }
    for format in ("txt", "csv", "jsonl", None):
        assert read(bom, format) == read(b"", format) == ({}, [])


# jsonl


def test_jsonl_sets_aside_what_is_no_object() -> None:
    data = (
        b'{"id": 1}\n{"id": \n[1]\n7\n"x"\n{"id": "\xff"}\n{"id":1e999}\n{"a":1} {"b":2}\n'
        + b'{"a":' * 50_000
        + b'\n{"id": 2}\n'
    )
    inputs, bad = read(data, "jsonl")
    assert inputs == {1: {"id": 1}, 10: {"id": 2}}
    assert lines_of(bad) == [2, 3, 4, 5, 6, 7, 8, 9]
    reasons = [each.reason for each in bad]
    assert reasons[0].startswith("it is not JSON: ")
    assert all("not an object" in reason for reason in reasons[1:4])
    assert (
        reasons[4]
        == "it is not UTF-8: byte 0xff at position 9; save the list as UTF-8, and submit it again"
    )
    assert reasons[7] == "it is nested too deeply"
    assert bad[0].text == '{"id": '
    assert len(bad[7].text) == 200


def test_jsonl_that_gives_a_name_twice_is_malformed() -> None:
    data = b'{"id": 1, "at": "10:00"}\n{"id": "D", "id" : "E"}\n{"id": 3, "of": [{"a": 1, "a": 2}]}\n{"id": 4}\n'
    inputs, bad = read(data, "jsonl")
    assert inputs == {1: {"id": 1, "at": "10:00"}, 4: {"id": 4}}
    assert {each.line: each.reason for each in bad} == {
        2: "it gives 'id' twice; give each name once",
        3: "it gives 'a' twice; give each name once",
    }


# csv


def test_csv_with_a_header() -> None:
    data = b'name,id\n"Ada, L.",a\n"say ""hi""",b\n'
    assert read(data, "csv")[0] == {
        2: {"name": "Ada, L.", "id": "a"},
        3: {"name": 'say "hi"', "id": "b"},
    }


@pytest.mark.parametrize("header", [b"ID;Name", b" id ; Name ", b"Id\tName"])
def test_csv_headers_as_people_write_them(header: bytes) -> None:
    mark = b"\t" if b"\t" in header else b";"
    assert read(b"\n" + header + b"\na,x" + mark + b"N\n", "csv")[0] == {
        3: {"id": "a,x", "Name": "N"}
    }


def test_csv_without_a_header() -> None:
    with pytest.raises(UsageError, match="line 1: the header lacks the column 'id'"):
        read(b"a,1,2\nb,3,4\n", "csv")
    assert read(b"a,1,2\nb,3,4\n", "csv", no_header=True)[0] == {
        1: {"id": "a", "column2": "1", "column3": "2"},
        2: {"id": "b", "column2": "3", "column3": "4"},
    }
    assert read(b"x,y,z\n", "csv", key=["batch", "asset"], no_header=True)[0] == {
        1: {"batch": "x", "asset": "y", "column3": "z"}
    }
    # A semicolon may belong to a key, as in old DOIs: only a header makes it a delimiter.
    dois = {1: {"id": "10.1002/x.CO;2-8"}, 2: {"id": "10.1002/y.CO;2-9"}}
    assert read(b"10.1002/x.CO;2-8\n10.1002/y.CO;2-9\n", "csv", no_header=True)[0] == dois


def test_csv_for_a_key_function_needs_a_header() -> None:
    assert read(b"url;n\nx;1\n", "csv", key=lambda content: content["url"])[0] == {
        2: {"url": "x", "n": "1"}
    }


def test_csv_rows_of_another_width_are_set_aside() -> None:
    inputs, bad = read(b"broken\na,1\nb\nc,3\nd,4,5\ne,6\n", "csv", no_header=True)
    assert inputs == {
        2: {"id": "a", "column2": "1"},
        4: {"id": "c", "column2": "3"},
        6: {"id": "e", "column2": "6"},
    }
    assert [(each.line, each.text) for each in bad] == [(1, "broken"), (3, "b"), (5, "d,4,5")]
    assert bad[0].reason == "it has 1 columns, expected 2: id, column2"


def test_csv_line_breaks_inside_quotes() -> None:
    assert read(b'id,note\na,"one\r\ntwo"\nb,x\n', "csv") == (
        {2: {"id": "a", "note": "one\r\ntwo"}, 4: {"id": "b", "note": "x"}},
        [],
    )


def test_csv_a_stray_quote_costs_its_own_line_only() -> None:
    rows = [f"k{n},v" for n in range(2, 2_500)]
    rows[500] = 'k502,"stray'
    rows[1_200] = 'k1202,"stray too'
    rows[1_300] = 'k1302,"x"y'
    inputs, bad = read("\n".join(["id,v", *rows]).encode(), "csv")
    assert lines_of(bad) == [502, 1_202, 1_302]
    assert bad[0].reason == "it is not CSV: a quote is not closed"
    assert len(inputs) == len(rows) - 3
    assert read(b'id,v\na,1\nb,"x', "csv") == (
        {2: {"id": "a", "v": "1"}},
        [BadLine(3, bad[0].reason, 'b,"x')],
    )


@pytest.mark.parametrize("at", [999, 1_000, 1_001])
def test_csv_a_row_may_lie_across_slices(at: int) -> None:
    rows = [f"k{n},v" for n in range(1, 2_000)]
    rows[at - 1] = f'k{at},"one\ntwo\nthree"'
    inputs, bad = read("\n".join(rows).encode(), "csv", no_header=True)
    assert bad == []
    assert inputs[at] == {"id": f"k{at}", "column2": "one\ntwo\nthree"}
    assert inputs[2_001] == {"id": "k1999", "column2": "v"}
    assert len(inputs) == 1_999


@pytest.mark.parametrize(
    ("data", "key", "message"),
    [
        (b"id,a,a\nx,1,2\n", "id", r"line 1: the header names the column 'a' twice"),
        (b"id,gr\xf6\xdfe\nx,1\n", "id", r"line 1: the header is not UTF-8; save it as UTF-8"),
        (b"x\ny\n", ["a", "b"], r"line 1: the header lacks the columns 'a', 'b'"),
    ],
)
def test_csv_whose_columns_cannot_be_told(data: bytes, key: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(data, "csv", key=key)


def test_a_header_with_an_unnamed_column() -> None:
    assert read(b"id,,x\na,b,c\n", "csv")[0] == {2: {"id": "a", "column2": "b", "x": "c"}}


# Lines


@pytest.mark.parametrize("format", ["txt", "csv", "jsonl"])
def test_three_bad_lines_among_many(format: str) -> None:
    row = {"txt": "k{}", "csv": "k{},v", "jsonl": '{{"id":"k{}"}}'}[format]
    rows = [row.format(n).encode() for n in range(1, 10_001)]
    for number in (1_000, 1_001, 9_999):
        rows[number - 1] = b"\xc3(" + rows[number - 1]
    inputs, bad = read(b"\n".join(rows), format, no_header=format == "csv")
    assert [(each.line, each.reason) for each in bad] == [
        (n, "it is not UTF-8: byte 0xc3 at position 1; save the list as UTF-8, and submit it again")
        for n in (1_000, 1_001, 9_999)
    ]
    assert len(inputs) == 9_997
    assert all(inputs[number]["id"] == f"k{number}" for number in inputs)


@pytest.mark.parametrize("format", ["txt", "csv", "jsonl"])
@pytest.mark.parametrize("length", [formats.LONGEST_LINE + 1, 3 * formats.LONGEST_LINE + 7])
def test_a_line_too_long_is_set_aside(format: str, length: int) -> None:
    sound = {"txt": b"a", "csv": b"a", "jsonl": b'{"id":"a"}'}[format]
    # Blanks after a sound beginning: what is cut off must not make the line look sound.
    long = sound.ljust(length - 1) + b"x"
    inputs, bad = read(b"\n".join([sound, long, sound, long]), format, no_header=format == "csv")
    assert list(inputs) == [1, 3]
    assert [(each.line, each.reason, len(each.text)) for each in bad] == [
        (2, "it is longer than 1 MiB", 200),
        (4, "it is longer than 1 MiB", 200),
    ]


def test_a_line_just_short_enough_is_read() -> None:
    line = b'{"id":"a"}'.ljust(formats.LONGEST_LINE)
    assert read(line + b"\n" + line, "jsonl") == ({1: {"id": "a"}, 2: {"id": "a"}}, [])


# Which format


@pytest.mark.parametrize(
    ("name", "data", "first"),
    [
        ("x.CSV", b"ID\na\n", {"id": "a"}),
        ("x.txt", b"a,b\n", {"id": "a,b"}),
        ("x.ndjson", b'{"id":"a"}\n', {"id": "a"}),
        ("-", b'\n  {"id":"a"}\n', {"id": "a"}),
        ("-", b"id,n\na,b\n", {"id": "a", "n": "b"}),
        ("-", b"id\na\n", {"id": "a"}),
        ("-", b"a\n", {"id": "a"}),
        ("master.2024", b"n\tid\n1\ta\n", {"n": "1", "id": "a"}),
    ],
)
def test_the_format_is_told_by_ending_or_beginning(name: str, data: bytes, first: Any) -> None:
    assert next(iter(read(data, name=name)[0].values())) == first


def test_formats_that_cannot_be() -> None:
    with pytest.raises(UsageError, match="use one of txt, csv, jsonl"):
        read(b"a\n", "xml")
    with pytest.raises(UsageError, match="jq -c"):
        read(b'[{"id":1}]', name="x.json")
    for magic in (b"\xff\xfea\0", b"\x1f\x8b\x08", b"PK\x03\x04"):
        with pytest.raises(UsageError, match=r"save it as|unpack it"):
            read(magic, "txt")


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"%PDF-1.4\n%\xe2\xe3\nrest\n", "is a PDF document; give its lines as txt, csv or jsonl"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "save it as CSV UTF-8"),
        (b"\xfd7zXZ\0\0", "unpack it first, as in: xz"),
        (b"\x28\xb5\x2f\xfd\x04", "unpack it first, as in: zstd"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "is an image"),
        (
            b"SQLite format 3\0\x10\0",
            "x is not text: byte 16 is 0; give txt, csv or jsonl, in UTF-8",
        ),
        (b"a\0\n\0", "x is not text: byte 2 is 0"),
    ],
)
@pytest.mark.parametrize("format", ["txt", "csv", "jsonl", None])
def test_a_file_of_another_kind_is_named_for_what_it_is(
    data: bytes, what: str, format: str | None
) -> None:
    with pytest.raises(UsageError, match=what):
        read(data, format, name="x")


def test_in_a_later_line_a_zero_byte_costs_its_own_line_only() -> None:
    inputs, bad = read(b'{"id":"a"}\n{"id":"\0"}\n{"id":"b"}\n', "jsonl")
    assert (list(inputs), lines_of(bad)) == ([1, 3], [2])


# Whatever comes

text = st.text(st.characters(blacklist_categories=["Cs"]))
keys = st.text(st.characters(blacklist_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1).filter(
    lambda key: key == key.strip()
)


@given(
    st.lists(
        st.dictionaries(
            text,
            st.none() | st.booleans() | st.integers() | text | st.lists(st.integers()),
            min_size=1,
        )
    )
)
def test_jsonl_round_trip(objects: list[dict[str, Any]]) -> None:
    data = "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in objects).encode()
    inputs, bad = read(data, "jsonl")
    assert (list(inputs.values()), bad) == (objects, [])


@given(st.lists(keys.filter(lambda key: not key.startswith("#"))), st.sampled_from(["\n", "\r\n"]))
def test_txt_round_trip(lines: list[str], end: str) -> None:
    inputs, bad = read("".join(line + end for line in lines).encode(), "txt")
    assert (inputs, bad) == ({number: {"id": line} for number, line in enumerate(lines, 1)}, [])


@given(
    st.lists(st.tuples(keys, text.filter(lambda value: value.count("\n") < 50)), min_size=1),
    st.sampled_from(["\n", "\r\n"]),
    st.integers(1, 5),
)
@example([("a", "\r"), ("b", '"'), ("c", "\n\n")], "\n", 1)
def test_csv_round_trip(rows: list[tuple[str, str]], end: str, size: int) -> None:
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator=end, quoting=csv.QUOTE_ALL)
    writer.writerows([("id", "note"), *rows])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "BATCH", size)
        inputs, bad = read(out.getvalue().encode(), "csv")
    assert (list(inputs.values()), bad) == ([{"id": key, "note": note} for key, note in rows], [])


hostile = st.lists(
    st.sampled_from(
        [
            b"a",
            b",",
            b'"',
            b"\n",
            b"\r",
            b"\r\n",
            b"\xff",
            b"\xc3",
            b"{",
            b"}",
            b'{"id":1}',
            b"[",
            b"#",
            b" ",
            b"\0",
            b"\t",
            b";",
            b"id",
            b"\xef\xbb\xbf",
        ]
    )
    | st.binary(max_size=4)
).map(b"".join)


@settings(max_examples=500)
@given(
    hostile,
    st.sampled_from(["txt", "csv", "jsonl", None]),
    st.integers(1, 4),
    st.integers(1, 9),
    st.booleans(),
)
def test_hostile_bytes_never_stop_a_list(
    data: bytes, format: str | None, size: int, chunk: int, no_header: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "BATCH", size)
        patch.setattr(source, "CHUNK", chunk)
        patch.setattr(formats, "LONGEST_LINE", 12)
        patch.setattr(source, "LONGEST_LINE", 12)
        try:
            inputs, bad = read(data, format, no_header=no_header)
        except UsageError:
            return
    numbers = [*inputs, *lines_of(bad)]
    assert len(set(numbers)) == len(numbers)
    assert all(1 <= number <= data.count(b"\n") + 1 for number in numbers)
    assert all(each.reason and len(each.text) <= 200 for each in bad)
    if format == "jsonl":
        held = [
            number
            for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1)
            if line.strip()
        ]
        assert sorted(numbers) == held


def test_a_byte_order_mark_that_comes_in_pieces_is_no_content(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(source, "CHUNK", 1)
    inputs, bad = read(b'\xef\xbb\xbf{"id": "a"}\n', "jsonl")
    assert (len(inputs), bad) == (1, [])
