"""DOIs: each way to write one gives the same key, and what is none is refused with a reason."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from milepost_deposits.doi import LONGEST, DoiMistake, is_doi, normalise, normalise_all

SICI = "10.1002/(SICI)1096-8644(199605)100:1<19::AID-AJPA3>3.0.CO;2-0"
dois = st.builds(
    "10.{}/{}".format,
    st.integers(1000, 999_999),
    st.text(
        st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters="&"),
        min_size=1,
        max_size=30,
    ).filter(lambda suffix: suffix[0] not in "\"'" and suffix[-1].isalnum()),
)
"""DOIs that hold any printable ASCII character, also '%', '?', '#', quotes and brackets."""


@pytest.mark.parametrize(
    ("text", "doi"),
    [
        ("10.1002/abcd.20417", "10.1002/abcd.20417"),
        ("https://doi.org/10.1000/ABC", "10.1000/abc"),
        ("HTTP://DX.DOI.ORG/10.1000/abc", "10.1000/abc"),
        ("doi.org/10.1000/abc", "10.1000/abc"),
        ("https://www.doi.org/10.1000/abc?utm=x#top", "10.1000/abc"),
        ("DOI: 10.1000/abc.", "10.1000/abc"),
        ("doi:10.1/x", "10.1/x"),
        ("DOI 10.1/x", "10.1/x"),
        ("doi:https://doi.org/10.1/x", "10.1/x"),
        ("info:doi/10.1/x", "10.1/x"),
        ("urn:doi:10.1/x", "10.1/x"),
        ("http://dx.doi.org/10.1000%2F456%23789", "10.1000/456#789"),
        ("https://doi.org/10.1/a%2520b", "10.1/a%20b"),
        ("10.1/a%20b", "10.1/a%20b"),
        ("10.1000/a?b#c", "10.1000/a?b#c"),
        (SICI, SICI.lower()),
        ("https://doi.org/" + quote(SICI, safe=""), SICI.lower()),
        (SICI.replace("<", "&lt;").replace(">", "&gt;"), SICI.lower()),
        ("10.1000/É1", "10.1000/É1"),
        ("10.1000.10/123", "10.1000.10/123"),
        ("\ufeff10.1/x\u200b \r", "10.1/x"),
        ("  10.1/X  ", "10.1/x"),
        ("\xa010.1/x\xa0", "10.1/x"),
        ('"10.1/x"', "10.1/x"),
        ("“10.1/x”,", "10.1/x"),
        ("<https://doi.org/10.1/x>", "10.1/x"),
        ("(10.1/x)", "10.1/x"),
        ("10.1/x)", "10.1/x"),
        ("10.1/x(1)", "10.1/x(1)"),
        ("10.1/x...", "10.1/x"),
        ("https://onlinelibrary.wiley.com/doi/10.1002/ABC.1", "10.1002/abc.1"),
        ("https://onlinelibrary.wiley.com/doi/full/10.1002/abc.1?af=R", "10.1002/abc.1"),
        ("https://www.tandfonline.com/doi/epdf/10.1080/x.1", "10.1080/x.1"),
        ("https://journals.example.org/en/doi/10.1002%2Fabc.1", "10.1002/abc.1"),
    ],
)
def test_each_form_gives_the_one_doi(text: str, doi: str) -> None:
    assert normalise(text) == doi


@pytest.mark.parametrize(
    "text",
    [
        "", "   ", "DOI", "doi:", "10.1002", "10.1002/", "10.1002/.", "11.1002/x", "10.x/y", "10.1/a b", "10.1 /a", "https://doi.org/",
        "https://example.org/10.1/x", "10.1/\x00x", "10.1/\u202ex", "None", "10.1/" + "x" * LONGEST, "10.1/\ud800",
    ],
)  # fmt: skip
def test_what_is_no_doi_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(DoiMistake) as raised:
        normalise(text)
    assert str(raised.value)
    assert not is_doi(text)


@given(dois)
def test_all_forms_of_a_doi_are_one(doi: str) -> None:
    wanted = normalise(doi)
    encoded = quote(doi, safe="")
    for form in (
        doi.upper(),
        f" {doi}. ",
        f"doi:{doi}",
        f"https://doi.org/{encoded}",
        f"http://dx.doi.org/{encoded}/"[:-1],
        f'"{doi}"',
    ):
        assert normalise(form) == wanted


@given(
    st.one_of(
        st.text(), dois, st.builds("{}{}{}".format, st.text(max_size=5), dois, st.text(max_size=5))
    )
)
@example("https://doi.org/https%3A%2F%2Fdoi.org%2F10.1%2Fx")
@example("10.1/a&amp;lt;b")
@example("10.1/x&GT;")
def test_a_normalised_doi_stays_as_it_is(text: str) -> None:
    assume(is_doi(text))
    doi = normalise(text)
    assert normalise(doi) == doi
    assert doi.isprintable()
    assert not any(letter.isascii() and letter.isupper() for letter in doi)


@given(dois, dois)
def test_different_dois_stay_different(one: str, other: str) -> None:
    assume(one.lower() != other.lower())
    assert normalise(one) != normalise(other)


usual = st.builds(
    "{}{}".format,
    st.sampled_from(["", "", "https://doi.org/", "HTTP://dx.doi.org/", "doi:", "DOI: "]),
    dois,
)


@given(st.lists(usual | st.text(max_size=12) | st.just("10.1/a\n10.1/b"), min_size=1, max_size=8))
@example(["https://doi.org/10.1/a%2Fb"])
@example(["https://doi.org/10.1/a?b"])
@example(["10.1/" + "x" * LONGEST])
@example(["10.1/x\u2028"])
def test_many_at_once_are_normalised_as_each_would_be(texts: list[str]) -> None:
    found = normalise_all(texts)
    assert found is None or found == [normalise(text) for text in texts]


def test_the_usual_forms_are_normalised_at_once() -> None:
    texts = [
        "10.1/A",
        "https://doi.org/10.1/b",
        "http://dx.doi.org/10.1/C(1)2",
        "doi:10.1/d",
        "DOI: 10.1/e",
    ]
    assert normalise_all(texts) == ["10.1/a", "10.1/b", "10.1/c(1)2", "10.1/d", "10.1/e"]
