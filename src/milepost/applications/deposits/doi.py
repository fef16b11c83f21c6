"""DOIs: normalisation of the forms in which people and programs write them, and the check of the result."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

LONGEST = 1_000
"""Most characters of a DOI here: it is the key of an item."""

LONGEST_TEXT = 4 * LONGEST
"""Most characters of a text that is looked at: it may be an encoded URL. The time to find a DOI in it grows with the square."""
_PLAIN = re.compile(r"10\.[0-9]{1,9}(?:\.[0-9]+)*/[!-%'-~]*[0-9A-Za-z]")
"""The usual case, which needs nothing but lower case."""
_PREFIX = re.compile(r"info:doi/|urn:doi:|doi(?:\s*:\s*|\s+)", re.IGNORECASE)
_URL = re.compile(r"(?:https?://)?(?:dx\.|www\.)?doi\.org/", re.IGNORECASE)
_VALID = re.compile(r"10\.[0-9]{1,9}(?:\.[0-9]+)*/\S+")
_ENTITY = re.compile(r"&(lt|gt|amp|quot);", re.IGNORECASE)
_ENTITIES = {"lt": "<", "gt": ">", "amp": "&", "quot": '"'}
_INVISIBLE = dict.fromkeys(map(ord, "\ufeff\u200b\u200c\u200d\u2060\u00ad"))
_QUOTES = "\"'“”‘’«»"
_OPEN, _CLOSE = "(<[{", ")>]}"
_LOWER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
_SAFE_IN_URL = "/:;()@!$*,=+~"
_PLAIN_LINES = re.compile(rf"(?:{_PLAIN.pattern}\n)+")
_USUAL_BEGINNING = re.compile(r"^(?:https?://(?:dx\.)?doi\.org/|doi: ?)(?=10\.[^%?#\n]+$)", re.IGNORECASE | re.MULTILINE)
"""Beginnings that can be cut off, since what follows has no character with a meaning in URLs."""


class DoiMistake(ValueError):
    """The text is no DOI; the message says why."""


def normalise(text: str) -> str:
    """The one form of a DOI: without prefix, ASCII letters in lower case (a DOI ignores the case of those alone). Raises DoiMistake."""
    if _PLAIN.fullmatch(text) is not None and len(text) <= LONGEST:
        return text.lower()
    if len(text.strip()) > LONGEST_TEXT:
        raise DoiMistake(f"it has more than {LONGEST_TEXT:,} characters")
    doi = _bare(text.translate(_INVISIBLE)).translate(_LOWER)
    if not doi:
        raise DoiMistake("it is empty")
    if len(doi) > LONGEST:
        raise DoiMistake(f"it has more than {LONGEST:,} characters")
    if _VALID.fullmatch(doi) is None or not doi.isprintable():
        raise DoiMistake(f"{text.strip()[:100]!r} is not a DOI, such as 10.1002/abcd.20417")
    return doi


def normalise_all(texts: list[str]) -> list[str] | None:
    """The normalised forms of many DOIs that are all written in one of the usual ways, at the speed of a few expressions over the whole;
    None: `normalise` must look at each."""
    lines = "\n".join([*texts, ""])
    begun = ":" in lines and ("doi" in lines or "DOI" in lines)
    plain = _USUAL_BEGINNING.sub("", lines) if begun else lines
    if _PLAIN_LINES.fullmatch(plain) is None or plain.count("\n") != len(texts):
        return None
    lower = plain.lower()
    # Usually a list has the normalised forms already.
    found = texts if lower == lines else lower.splitlines()
    return found if max(map(len, found)) <= LONGEST else None


def doi_url(doi: str) -> str:
    """The address of a normalised DOI at the resolver. Characters that begin another part of a URL are encoded."""
    return f"https://doi.org/{quote(doi, safe=_SAFE_IN_URL)}"


def doi_or_none(text: str) -> str | None:
    """The DOI in a text; None if it is none."""
    try:
        return normalise(text)
    except DoiMistake:
        return None


def is_doi(text: str) -> bool:
    """Can this text be normalised?"""
    return doi_or_none(text) is not None


def _bare(text: str) -> str:
    """The text without what surrounds a DOI: spaces, quotes, prefixes, the resolver's address, and a sentence's punctuation."""
    before = None
    while text != before:
        before = text
        text = _trimmed(_ENTITY.sub(lambda found: _ENTITIES[found[1].lower()], text))
        if prefix := _PREFIX.match(text):
            text = text[prefix.end() :]
        elif url := _URL.match(text):
            # In a URL '?' and '#' begin other parts, and '%' an encoded character. A bare DOI may hold all three.
            text = unquote(re.split(r"[?#]", text[url.end() :], maxsplit=1)[0]).translate(_INVISIBLE)
    return text


def _trimmed(text: str) -> str:
    """The text without spaces, quotes and final punctuation around it, and without a bracket that has no partner or encloses it."""
    before = None
    while text != before:
        before = text
        text = text.strip().strip(_QUOTES).rstrip(".,;:")
        if text and text[0] in _OPEN:
            text = text[1:]
        elif text and text[-1] in _CLOSE and text.count(text[-1]) > text.count(_OPEN[_CLOSE.index(text[-1])]):
            text = text[:-1]
    return text
