"""Stages of a DOI, and the partner that each of them asks."""

from __future__ import annotations

METADATA, CONTENT, SUBMIT = "metadata", "content", "submit"
PARTNERS = {METADATA: "Crossref", CONTENT: "the publisher", SUBMIT: "DSpace"}
