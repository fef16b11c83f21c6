"""Documents of an application: conditional writes, and each application sees its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.application.parcels_application import Settings, application

import milepost as mp
from milepost.application.context import AppDocuments


@pytest.fixture(params=["memory", "sqlite"])
def documents(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AppDocuments]:
    url = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'milepost.db'}"
    with mp.open(url, applications=[application]) as desk:
        yield application.with_settings(Settings()).on(desk.context).documents


def test_a_write_that_has_read_another_version_is_refused(documents: AppDocuments) -> None:
    assert documents.get("scale") is None
    assert documents.put("scale", {"grams": 1}, expect=0)
    assert not documents.put("scale", {"grams": 2}, expect=0)
    held = documents.get("scale")
    assert held is not None
    assert held.value == {"grams": 1}
    assert documents.put("scale", {"grams": 2}, expect=held.version)
    assert not documents.put("scale", {"grams": 3}, expect=held.version)
    assert not documents.remove("scale", expect=held.version)
    assert documents.remove("scale")
    assert not documents.remove("scale")


def test_documents_are_found_by_the_beginning_of_their_names(documents: AppDocuments) -> None:
    for name in ("depot/south", "depot/north", "scale"):
        documents.put(name, name)
    assert list(documents.find("depot/")) == ["depot/north", "depot/south"]
    assert len(documents.find()) == 3


def test_another_application_does_not_see_them(documents: AppDocuments) -> None:
    documents.put("scale", 1)
    other = AppDocuments(documents._context, "parcels")
    assert other.get("scale") is None
    assert other.find() == {}


def test_what_cannot_be_kept_is_refused(documents: AppDocuments) -> None:
    with pytest.raises(mp.UsageError, match="at most 200,000"):
        documents.put("large", "x" * 200_000)
    with pytest.raises(mp.UsageError, match="invalid name"):
        documents.put("", 1)


def test_a_command_without_a_ledger_has_none() -> None:
    with pytest.raises(mp.UsageError, match="opens no ledger"):
        _ = application.with_settings(Settings()).on(None).documents


class Scale(msgspec.Struct, frozen=True):
    grams: int


def heavier(scale: Scale | None) -> Scale:
    return Scale(1 if scale is None else scale.grams + 1)


def test_a_document_is_changed_by_a_function_of_its_value(documents: AppDocuments) -> None:
    made = documents.update("scale", Scale, heavier)
    assert (made.before, made.after, made.written) == (None, Scale(1), True)
    assert documents.update("scale", Scale, heavier).after == Scale(2)
    assert not documents.update("scale", Scale, lambda scale: scale).written
    held = documents.get("scale")
    assert held is not None
    assert held.value == {"grams": 2}
    assert documents.update("scale", Scale, lambda _: None).written
    assert documents.get("scale") is None


def test_a_change_is_repeated_on_what_another_process_has_written(
    documents: AppDocuments,
) -> None:
    seen: list[Scale | None] = []

    def overtaken(scale: Scale | None) -> Scale:
        seen.append(scale)
        if len(seen) == 1:
            documents.put("scale", {"grams": 40})
        return heavier(scale)

    assert documents.update("scale", Scale, overtaken).after == Scale(41)
    assert seen == [None, Scale(40)]


def test_a_change_to_what_cannot_be_kept_is_refused(documents: AppDocuments) -> None:
    with pytest.raises(mp.UsageError, match="at most 200,000"):
        documents.update("large", str, lambda _: "x" * 200_000)
    with pytest.raises(mp.UsageError, match="invalid name"):
        documents.update("", int, lambda _: 1)
    assert documents.find() == {}
