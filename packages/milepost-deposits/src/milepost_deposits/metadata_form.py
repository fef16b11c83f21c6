"""Forms of the metadata file: DSpace's own, and that of the submission service before August
2026."""

from __future__ import annotations

from typing import Any, Literal


def in_form(content: Any, form: Literal["old", "dspace8"]) -> Any:
    """The content of a metadata file of either form in this form: the setting may have changed
    since the file was written."""
    if not isinstance(content, dict):
        return content
    entries = content.get("metadata")
    if form == "dspace8" and isinstance(entries, list):
        fields: dict[str, list[dict[str, Any]]] = {}
        for entry in entries:
            fields.setdefault(entry["key"], []).append({"value": entry["value"]})
        return fields
    if form == "old" and not isinstance(entries, list):
        return {
            "metadata": [
                {"key": key, "value": entry["value"]}
                for key, values in content.items()
                for entry in values
            ]
        }
    return content
