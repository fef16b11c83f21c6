"""The glossary defines each domain word once, and only words that the code uses."""

from __future__ import annotations

import re

from tests.project import ROOT

PAGE = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
TERMS = [term.lower() for term in re.findall(r"\*\*([^*]+)\*\*", PAGE)]
OF_THE_DESIGN = (
    "item route stage outcome ledger attempt lease loss round work_id lane event subscriber seal list resender operator "
    "claim fence offer head evidence transfer quarantine admission back-fill row status history"
)


def plain(text: str) -> str:
    """Words in one form: `foreign_rows`, `foreign-row` and "foreign rows" are alike."""
    return re.sub(r"[\s_\-]+", " ", text.lower())


def test_every_word_of_the_design_is_defined() -> None:
    assert sorted(set(OF_THE_DESIGN.split()) - set(TERMS)) == []


def test_no_word_is_defined_twice() -> None:
    assert sorted({term for term in TERMS if TERMS.count(term) > 1}) == []


def test_every_word_is_used_in_the_code() -> None:
    code = " ".join(
        plain(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / "packages").glob("*/src/**/*.py"))
    )
    assert [term for term in TERMS if plain(term) not in code] == []
