"""PREMIS 3: items and their files as objects, history lines as events, whoever did them as agents.

The schema wants all objects first, then all events, then all agents: the records are gone through once for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from msgspec import Struct

from milepost.core.durations import iso
from milepost.core.events import event_id
from milepost.core.evidence import SCHEMA
from milepost.core.history import Line, decode_line
from milepost.core.item import canonical_json
from milepost.core.status import REASON_MEANING

NAMESPACE = "http://www.loc.gov/premis/v3"
XSI = "http://www.w3.org/2001/XMLSchema-instance"
ITEM, FILE, EVENT, AGENT = "milepost item", "milepost file", "milepost event", "milepost agent"
"""The kinds of identifiers."""


class FileFacts(Struct):
    """What the outputs say of one file."""

    digests: dict[str, str] = {}
    size: int | None = None
    volumes: list[str] = []


def files_of(record: dict[str, Any]) -> dict[str, FileFacts]:
    """The files that a record's outputs name, by path. An output may have `filePaths`, a list, with `digests` of
    "algorithm:hex" by path; `files`, a list of objects with `path`, `digest` and `bytes`; or be an object of paths, each with
    a list of the volumes that hold the file."""
    files: dict[str, FileFacts] = {}
    for entry in record.get("stages", ()):
        output = entry.get("output")
        if not isinstance(output, dict):
            continue
        for path in _texts(output.get("filePaths")):
            files.setdefault(path, FileFacts())
        digests = output.get("digests")
        for path, digest in (digests if isinstance(digests, dict) else {}).items():
            _digest(files.setdefault(path, FileFacts()), digest)
        for file in output["files"] if isinstance(output.get("files"), list) else ():
            if isinstance(file, dict) and isinstance(file.get("path"), str):
                facts = files.setdefault(file["path"], FileFacts())
                _digest(facts, file.get("digest"))
                facts.size = file["bytes"] if type(file.get("bytes")) is int else facts.size
        if output and all(isinstance(value, list) and value == _texts(value) for value in output.values()) and "filePaths" not in output:
            for path, volumes in output.items():
                facts = files.setdefault(path, FileFacts())
                facts.volumes += [volume for volume in volumes if volume not in facts.volumes]
    return files


def _texts(value: Any) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


def _digest(facts: FileFacts, digest: Any) -> None:
    if isinstance(digest, str) and ":" in digest:
        algorithm, _, value = digest.partition(":")
        facts.digests[algorithm] = value


def premis(records: Callable[[], Iterable[dict[str, Any]]]) -> Iterator[str]:
    """The document, a piece at a time. Of all records only the agents' names are held."""
    yield f'<?xml version="1.0" encoding="UTF-8"?>\n<premis xmlns={quoteattr(NAMESPACE)} xmlns:xsi={quoteattr(XSI)} version="3.0">\n'
    for record in records():
        yield from _objects(record)
    agents: dict[str, str] = {}
    for record in records():
        yield from _events(record, agents)
    for name, kind in sorted(agents.items()):
        yield _line("agent", _identifier("agent", AGENT, name) + _text("agentName", name) + _text("agentType", kind))
    yield "</premis>\n"


def _objects(record: dict[str, Any]) -> Iterator[str]:
    files = files_of(record)
    facts = [("input digest, sha256", record["input_digest"]), ("status", record["status"])]
    properties = "".join(
        _element("significantProperties", _text("significantPropertiesType", kind) + _text("significantPropertiesValue", value))
        for kind, value in facts
    )
    parts = "".join(
        _element(
            "relationship",
            _text("relationshipType", "structural")
            + _text("relationshipSubType", "includes")
            + _identifier("relatedObject", FILE, _file(record, path)),
        )
        for path in files
    )
    yield _line("object", _identifier("object", ITEM, _item(record)) + properties + parts, 'xsi:type="intellectualEntity"')
    for path, facts_of in files.items():
        characteristics = "".join(
            _element("fixity", _text("messageDigestAlgorithm", algorithm) + _text("messageDigest", digest))
            for algorithm, digest in facts_of.digests.items()
        )
        if facts_of.size is not None:
            characteristics += _text("size", str(facts_of.size))
        # The schema wants a format; nothing that Milepost was told says which.
        characteristics += _element("format", _element("formatDesignation", _text("formatName", "unknown")))
        storage = "".join(
            _element(
                "storage",
                _element("contentLocation", _text("contentLocationType", "volume") + _text("contentLocationValue", volume)),
            )
            for volume in facts_of.volumes
        )
        yield _line(
            "object",
            _identifier("object", FILE, _file(record, path))
            + _element("objectCharacteristics", characteristics)
            + _text("originalName", path)
            + storage,
            'xsi:type="file"',
        )


def _events(record: dict[str, Any], agents: dict[str, str]) -> Iterator[str]:
    if record["schema"] != SCHEMA:
        return
    acts = {act["line"] for act in record["acts"]}
    through = {entry["line"]: entry for entry in record["stages"]}
    for text in record["chain"]["lines"]:
        line = decode_line(text.encode())
        agent = line.by or "milepost"
        kind = "person" if line.version in acts and line.by else "software"
        agents[agent] = "person" if "person" in (kind, agents.get(agent)) else kind
        linked = _linked("Object", ITEM, _item(record))
        entry = through.get(line.version)
        if entry is not None:
            linked += "".join(_linked("Object", FILE, _file(record, path)) for path in files_of({"stages": [entry]}))
        yield _line(
            "event",
            _identifier("event", EVENT, event_id(record["route"], record["key"], line.version, line.reason.value))
            + _text("eventType", line.reason.value)
            + _text("eventDateTime", iso(line.at) or "")
            + _element("eventDetailInformation", _text("eventDetail", _detail(line)))
            + _element("eventOutcomeInformation", _outcome(line, entry))
            + _linked("Agent", AGENT, agent)
            + linked,
        )


def _detail(line: Line) -> str:
    place = f"stage {line.stage}" + (f", on to {line.to}" if line.to else "")
    return f"{REASON_MEANING[line.reason]} ({place})" + (f": {line.why}" if line.why else "")


def _outcome(line: Line, entry: dict[str, Any] | None) -> str:
    notes = []
    if line.attempt is not None:
        notes.append(f"{line.attempt.category}: {line.attempt.message}")
    if line.output is not None:
        notes.append(f"output, sha256 of its canonical JSON: {line.output}")
    if entry is not None and "output" in entry:
        notes.append(canonical_json(entry["output"]).decode())
    return _text("eventOutcome", line.status.value) + "".join(
        _element("eventOutcomeDetail", _text("eventOutcomeDetailNote", note)) for note in notes
    )


def _item(record: dict[str, Any]) -> str:
    return f"{record['route']}/{record['key']}"


def _file(record: dict[str, Any], path: str) -> str:
    """A path may be in two items' outputs; each is an object of its own."""
    return f"{_item(record)}/{path}"


def _identifier(of: str, kind: str, value: str) -> str:
    return _element(f"{of}Identifier", _text(f"{of}IdentifierType", kind) + _text(f"{of}IdentifierValue", value))


def _linked(what: str, kind: str, value: str) -> str:
    return _identifier(f"linking{what}", kind, value)


def _element(name: str, content: str, attributes: str = "") -> str:
    """An element of elements."""
    return f"<{name}{' ' if attributes else ''}{attributes}>{content}</{name}>"


def _line(name: str, content: str, attributes: str = "") -> str:
    return _element(name, content, attributes) + "\n"


def _text(name: str, text: str) -> str:
    return f"<{name}>{escape(_allowed(text))}</{name}>"


def _allowed(text: str) -> str:
    """XML has no way to write most control characters."""
    return "".join(c if c in "\t\n" or (c >= " " and c not in "￾￿" and not "\ud800" <= c <= "\udfff") else "�" for c in text)
