"""Rows and values between the rules and DynamoDB's attributes: nothing is lost on the way, and
others may write as they like."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from milepost.blobs.memory import MemoryBlobs
from milepost.core.decide import accept
from milepost.core.errors import LedgerDamaged
from milepost.core.item import Failure, Row, digest_of
from milepost.core.outcome import Done, outcome_to_builtins
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Route
from milepost.core.status import TERMINAL, Status
from milepost_aws.ledger.tables.conditional_write import put_of
from milepost_aws.ledger.tables.item_rows import (
    attributes,
    content_of,
    input_of,
    item_of,
    kept_of,
    links_of,
    row_of,
)
from milepost_aws.ledger.tables.keys import Image, Layout, key_attributes
from milepost_aws.ledger.tables.values import LARGEST, Values

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
MOMENT = st.integers(0, 253_402_300_799_999)


def archive(**more: Any) -> Plan:
    route = Route("assets", key=("assetId", "batchId"), **more)
    route.external("CC")
    route.external("Scout", accepts=lambda value: isinstance(value, dict) and "volumes" in value)
    return Plan(route, grace_ms=600_000, offer_life_ms=1_209_600_000)


PLAN = archive()
LAYOUT = Layout.of(PLAN, "t-assets")


@st.composite
def rows(draw: st.DrawFn) -> Row:
    status = draw(st.sampled_from(Status))
    ended = status in TERMINAL
    held = status is Status.PROCESSING
    return Row(
        "assets",
        draw(st.sampled_from(["a#b", "%23#%25", "ключ#☃", "x y#"])),
        draw(st.sampled_from(["CC", "Scout", "gone"])),
        status,
        draw(st.integers(1, 10**6)),
        draw(st.binary(min_size=32, max_size=32)),
        *(draw(MOMENT) for _ in range(3)),
        draw(TEXT),
        draw(st.binary(min_size=32, max_size=32)),
        draw(TEXT),
        None if ended else draw(MOMENT),
        None if ended else draw(st.none() | MOMENT),
        draw(TEXT) if held else None,
        draw(TEXT) if held else None,
        draw(MOMENT) if held else None,
        *(draw(st.integers(0, 99)) for _ in range(4)),
        draw(st.integers(1, 9)),
        draw(st.integers(1, 9)),
        *(draw(st.booleans()) for _ in range(4)),
        draw(st.none() | TEXT),
        draw(st.none() | TEXT),
        draw(
            st.none()
            | st.builds(Failure, TEXT, TEXT, MOMENT, TEXT, JSON, st.none() | st.integers(100, 599))
        ),
        {},
        draw(st.none() | st.just({"type": "done", "output": 1})),
    )


def stored(row: Row) -> Image:
    undecided = (
        {}
        if row.undecided is None
        else {"undecided": Values(MemoryBlobs()).encode(row.undecided, "x")}
    )
    return {**LAYOUT.key_image(row.key), **attributes(row, LAYOUT), **undecided}


@given(rows())
def test_a_row_comes_back_as_it_was(row: Row) -> None:
    assert replace(row_of(stored(row), LAYOUT, Values(MemoryBlobs())), handle=None) == row


@given(rows())
def test_what_is_stored_is_what_dynamodb_takes(row: Row) -> None:
    for name, value in stored(row).items():
        ((kind, content),) = value.items()
        assert kind in ("S", "N", "B", "BOOL"), name
        assert isinstance(content, {"BOOL": bool, "B": bytes}.get(kind, str))


@given(JSON)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    values = Values(MemoryBlobs())
    assert values.decode(values.encode(value, "assets/1")) == value


@pytest.mark.parametrize("size", [LARGEST - 2, LARGEST - 1, 3 * LARGEST])
def test_a_large_value_is_kept_apart_and_comes_back(size: int) -> None:
    blobs = MemoryBlobs()
    values = Values(blobs)
    attribute = values.encode("x" * size, "assets/1")
    assert ("M" in attribute) is (size + 2 > LARGEST)
    assert values.decode(attribute) == "x" * size


def test_a_blob_that_was_changed_behind_our_back_is_not_believed() -> None:
    blobs = MemoryBlobs()
    values = Values(blobs)
    attribute = values.encode("x" * 9000, "assets/1")
    blobs.write(attribute["M"]["blob"]["S"], [b'"other"'])
    with pytest.raises(LedgerDamaged, match="digest differs"):
        values.decode(attribute)


def test_a_rows_blobs_go_with_it() -> None:
    blobs = MemoryBlobs()
    values = Values(blobs)
    attribute = values.encode("x" * 9000, "assets/1")
    values.remove({"input": attribute, "status": {"S": "COMPLETED"}}, "assets/2")
    assert values.decode(attribute) == "x" * 9000
    values.remove({"input": attribute, "status": {"S": "COMPLETED"}}, "assets/1")
    with pytest.raises(FileNotFoundError):
        values.decode(attribute)


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ({"S": "done"}, "done"),
        ({"S": '{"filePaths": ["a"]}'}, {"filePaths": ["a"]}),
        ({"BOOL": True}, True),
        ({"N": "12.5"}, 12.5),
        ({"NULL": True}, None),
        ({"M": {"a": {"L": [{"N": "1"}, {"S": "b"}]}}}, {"a": [1, "b"]}),
        ({"SS": ["b", "a"]}, ["a", "b"]),
        ({"NS": ["2", "1"]}, [1, 2]),
    ],
)
def test_others_may_write_any_type(attribute: dict[str, Any], value: Any) -> None:
    assert Values(MemoryBlobs()).decode(attribute) == value


class TestConfirmations:
    values = Values(MemoryBlobs())

    def image(self, **more: dict[str, Any]) -> Image:
        content = {"assetId": "a", "batchId": "b"}
        change = accept(PLAN, "a#b", content, 1000, correlation_id="c", digest=digest_of(content))
        return {**put_of(change, content, LAYOUT, self.values, "token"), **more}

    def kept(self, **more: dict[str, Any]) -> dict[str, Any]:
        return kept_of(self.image(**more), LAYOUT, self.values)

    def test_an_attribute_of_a_stage_that_is_not_through_is_kept_for_it(self) -> None:
        kept = outcome_to_builtins(Done("yes"))
        assert self.kept(ingested_CC={"S": "yes"}) == {
            "CC": {**kept, "by": "row attribute ingested_CC"}
        }
        assert self.kept(ingested_CC={"S": "yes"}, confirmedBy_CC={"S": "checker"}) == {
            "CC": {**kept, "by": "checker"}
        }

    def test_one_of_a_stage_that_is_through_is_its_result(self) -> None:
        image = self.image(ingested_CC={"S": '{"files": 3}'}, through={"SS": ["CC"]})
        assert kept_of(image, LAYOUT, self.values) == {}
        assert content_of(image, LAYOUT, self.values).results == {"CC": {"files": 3}}

    @pytest.mark.parametrize("text", ["", "false", "no", "0", "null", "{}", "[]", " False "])
    def test_a_way_to_say_no_confirms_nothing(self, text: str) -> None:
        assert self.kept(ingested_CC={"S": text}) == {}

    @pytest.mark.parametrize(
        "typed", [{"BOOL": False}, {"N": "0"}, {"NULL": True}, {"M": {}}, {"L": []}]
    )
    def test_nor_does_an_empty_value_of_any_type(self, typed: dict[str, Any]) -> None:
        assert self.kept(ingested_CC=typed) == {}

    def test_a_stages_own_check_is_asked(self) -> None:
        assert self.kept(ingested_Scout={"S": "yes"}) == {}
        assert list(self.kept(ingested_Scout={"S": '{"volumes": ["V1"]}'})) == ["Scout"]

    def test_a_rewritten_input_is_the_next_stages_payload(self) -> None:
        kept = self.kept(ingested_CC={"S": "yes"}, input={"S": '{"filePaths": ["x"]}'})
        by = "row attribute ingested_CC"
        assert kept["CC"] == {
            "type": "done",
            "output": "yes",
            "payload": {"filePaths": ["x"]},
            "by": by,
        }

    def test_todays_dialect_has_its_own_names(self) -> None:
        layout = Layout.of(archive(dialect="today"), "t")
        image = {**self.image(), "result_CC": {"S": "yes"}, "ingested_CC": {"S": "yes"}}
        assert list(kept_of(image, layout, self.values)) == ["CC"]
        assert layout.prefix == "result_"

    def test_a_payload_that_is_a_result_is_only_referred_to(self) -> None:
        image = self.image(
            ingested_CC={"S": '{"files": 3}'},
            through={"SS": ["CC"]},
            payload_Scout={"M": {"of": {"S": "CC"}}},
        )
        item = item_of(image, LAYOUT, self.values)
        assert item.content.payloads == {"Scout": {"files": 3}}

    def test_a_new_row_has_its_first_line_on_it(self) -> None:
        (link,) = links_of(self.image(), self.values)
        assert link.version == 1
        assert b'"accepted"' in link.body


@pytest.mark.parametrize(
    ("key", "names"),
    [
        ("doi", ("doi",)),
        (("assetId", "batchId"), ("assetId", "batchId")),
        (("a", "b", "c"), ("key",)),
        (("messageId", "senderId", "timestamp", "targetUrl"), ("pk", "sk")),
        (lambda content: "x", ("key",)),
        ("status", ("key",)),
        (("id", "input"), ("key",)),
        ("ingested_by", ("key",)),
        (("same", "same"), ("key",)),
    ],
)
def test_a_tables_key_is_the_routes_own_where_it_can_be(key: Any, names: tuple[str, ...]) -> None:
    assert key_attributes(Route("r", key=key)) == names


@given(st.lists(st.text(min_size=1, max_size=9), min_size=2, max_size=2))
def test_a_key_of_two_parts_comes_back_as_it_was(parts: list[str]) -> None:
    key = "#".join(part.replace("%", "%25").replace("#", "%23") for part in parts)
    image = LAYOUT.key_image(key)
    assert [image[name]["S"] for name in LAYOUT.key] == parts
    assert LAYOUT.key_of(image) == key


def test_a_key_of_four_fields_is_two_pairs() -> None:
    route = Route("messages", key=("messageId", "senderId", "timestamp", "targetUrl"))
    route.external("deliver")
    layout = Layout.of(Plan(route), "t")
    key = route.key_of(
        {
            "messageId": "m#1",
            "senderId": "s",
            "timestamp": "2026-01-01T00:00:00Z",
            "targetUrl": "https://a.example/x?y=1#z",
        }
    )
    image = layout.key_image(key)
    assert image == {
        "pk": {"S": "m%231#s"},
        "sk": {"S": "2026-01-01T00:00:00Z#https://a.example/x?y=1%23z"},
    }
    assert layout.key_of(image) == key


def test_an_error_with_long_details_does_not_make_the_row_heavy() -> None:
    failure = Failure("HTTP", "no", 1, "g", {"body": "x" * 10_000})
    content = {"assetId": "a", "batchId": "b"}
    row = accept(PLAN, "a#b", content, 1000, correlation_id="c", digest=digest_of(content)).after
    shown = attributes(replace(row, error=failure), LAYOUT)["lastError"]["S"]
    assert len(shown) < 1000
    assert "see the history" in shown


INPUTS = (
    st.fixed_dictionaries(
        {"assetId": st.sampled_from(["a", "b#c", "7"]) | st.just(7), "batchId": TEXT}
    )
    | JSON
)


@given(INPUTS, st.dictionaries(TEXT, JSON, max_size=3), st.booleans())
def test_an_input_is_read_as_it_was_given_with_or_without_its_key_fields(
    first: Any, more: dict[str, Any], key_last: bool
) -> None:
    content = first
    if isinstance(first, dict):
        content = {**more, **first} if key_last else {**first, **more}
    values = Values(MemoryBlobs())
    for key in (
        "a#b",
        "b%23c#d",
        f"7#{first['batchId']}"
        if isinstance(first, dict) and "#" not in first.get("batchId", "#")
        else "7#x",
    ):
        image = {**LAYOUT.key_image(key), "input": input_of(content, key, LAYOUT, values, "p")}
        read = content_of(image, LAYOUT, values).input
        assert read == content
        if isinstance(content, dict):
            assert list(read) == list(content)


def test_key_fields_at_the_front_of_an_input_are_stored_once() -> None:
    values, given = Values(MemoryBlobs()), {"assetId": "a#1", "batchId": "b", "title": "t"}
    stored = input_of(given, "a%231#b", LAYOUT, values, "p")
    assert stored == {"M": {"+key": {"S": '{"title":"t"}'}}}
    for other in (
        {"title": "t", **given},
        {**given, "assetId": "elsewhere"},
        {**given, "title": "t" * LARGEST},
    ):
        assert "+key" not in input_of(other, "a%231#b", LAYOUT, values, "p").get("M", {})


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=2 * LARGEST))
def test_a_packed_line_is_read_as_it_was_written(previous: bytes, body: bytes) -> None:
    values = Values(MemoryBlobs())
    assert values.decode_line(values.encode_line(previous, body, "p")) == (previous, body)


@pytest.mark.parametrize("spoilt", [{"B": b""}, {"B": b"x" * 80}, {"S": "a line in plain text"}])
def test_a_line_that_cannot_be_unpacked_names_its_attribute(spoilt: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="'trail' holds a line that cannot be unpacked"):
        Values(MemoryBlobs()).decode_line(spoilt)


def test_a_blob_that_cannot_be_removed_keeps_no_other_from_leaving(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    blobs = MemoryBlobs()
    values, remove = Values(blobs), blobs.remove
    image = {name: values.encode(name * 9000, "assets/1") for name in "ab"}
    stays = image["a"]["M"]["blob"]["S"]

    def fail(name: str) -> None:
        if name == stays:
            raise OSError("timed out")
        remove(name)

    monkeypatch.setattr(blobs, "remove", fail)
    values.remove(image, "assets/1")
    assert list(blobs.held) == [stays]
    assert f"cannot remove the blob {stays}" in caplog.text
