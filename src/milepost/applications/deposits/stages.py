"""Stages of a DOI, and the partner that each of them asks."""

from __future__ import annotations

METADATA, CONTENT, SUBMIT = "metadata", "content", "submit"
CLEAN = "clean"
"""The stage of the follow-up route."""
PARTNERS = {METADATA: "Crossref", CONTENT: "the publisher", SUBMIT: "DSpace"}
