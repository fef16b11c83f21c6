"""PREMIS 3 export: items and files as objects, history lines as events, workers, partners and
operators as agents.

The schema requires all objects first, then all events, then all agents: the records are read once
for each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from milepost.core.events import event_id
from milepost.core.history import Line, decode_line
from milepost.core.status import Reason
from milepost.core.values.durations import iso
from milepost.core.values.json import canonical_json
from milepost.core.values.key_text import SEPARATOR, unescape_part
from milepost.evidence.files import chosen
from milepost.evidence.record import FORGOTTEN_SCHEMA, SCHEMA, life_of
from milepost.evidence.reported_files import FileFacts, reported_files

NAMESPACE = "http://www.loc.gov/premis/v3"
XSI = "http://www.w3.org/2001/XMLSchema-instance"
ITEM, FILE, EVENT, AGENT = "milepost item", "milepost file", "milepost event", "milepost agent"
"""The kinds of identifiers."""
EVENT_TYPES = {Reason.CHECKED: "fixity check"}
"""Event types with a word of the preservation vocabulary; the others are the reasons themselves."""
OUTCOMES = {Reason.CHECKED: "success"}
"""Outcomes of events that are not told by the item's status."""
PROGRAM = re.compile(r".+ \([^()]+ (\d[^ ,()]*)(?:, [^()]*)?\)")
"""An agent's name with program and version, such as "host (milepost 1.0.0, ocfl)"."""
NOTHING: Mapping[str, Any] = {}


def premis(
    records: Callable[[], Iterable[dict[str, Any]]], about: Mapping[str, Any] = NOTHING
) -> Iterator[str]:
    """The document in pieces. Only the agents' names are held in memory. `about` is the header of
    the evidence: it names the fields of the key, which are the archive's own identifiers, and the
    storage medium of each stage."""
    yield f'<?xml version="1.0" encoding="UTF-8"?>\n<premis xmlns={quoteattr(NAMESPACE)} xmlns:xsi={quoteattr(XSI)} version="3.0">\n'
    if "choice" in about:
        yield f"<!-- {_comment(chosen(str(about.get('route')), about['choice'], str(about.get('made_at'))))} -->\n"
    fields, media = about.get("key_fields") or [], about.get("media") or {}
    for record in records():
        yield from _objects(record, fields, media)
    agents: dict[str, str] = {}
    for record in records():
        yield from _events(record, agents)
    for name, kind in sorted(agents.items()):
        program = PROGRAM.fullmatch(name)
        version = "" if program is None or kind != "software" else _text("agentVersion", program[1])
        yield _line(
            "agent",
            _identifier("agent", AGENT, name)
            + _text("agentName", name)
            + _text("agentType", kind)
            + version,
        )
    yield "</premis>\n"


def _objects(record: dict[str, Any], fields: list[str], media: Mapping[str, str]) -> Iterator[str]:
    files = reported_files(record.get("stages", ()))
    digest, status = record.get("input_digest"), record["status"]
    # Of a life whose record is lost neither may be known.
    facts = [
        (name, value)
        for name, value in (("input digest, sha256", digest), ("status", status))
        if value
    ]
    if record["schema"] == FORGOTTEN_SCHEMA:
        facts.append(("content removed", record["forgotten_at"] or "yes"))
    properties = "".join(
        _element(
            "significantProperties",
            _text("significantPropertiesType", kind) + _text("significantPropertiesValue", value),
        )
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
    named = record["key"].split(SEPARATOR) if len(fields) > 1 else [record["key"]]
    fields = [] if record["schema"] == FORGOTTEN_SCHEMA else fields
    own = "".join(
        _identifier("object", field, unescape_part(part))
        for field, part in zip(fields, named, strict=False)
    )
    yield _line(
        "object",
        _identifier("object", ITEM, _item(record)) + own + properties + parts,
        'xsi:type="intellectualEntity"',
    )
    for path, facts_of in files.items():
        characteristics = "".join(
            _element(
                "fixity",
                _text("messageDigestAlgorithm", algorithm) + _text("messageDigest", digest),
            )
            for algorithm, digest in facts_of.digests.items()
        )
        if facts_of.size is not None:
            characteristics += _text("size", str(facts_of.size))
        # The schema requires a format, but Milepost does not know it.
        characteristics += _element(
            "format", _element("formatDesignation", _text("formatName", "unknown"))
        )
        yield _line(
            "object",
            _identifier("object", FILE, _file(record, path))
            + _element("objectCharacteristics", characteristics)
            + _text("originalName", path)
            + _storage(path, facts_of, media),
            'xsi:type="file"',
        )


def _storage(path: str, facts: FileFacts, media: Mapping[str, str]) -> str:
    """The file's locations: these volumes, and its path where a stage without a volume has found
    it."""
    places: list[tuple[str, str, str | None]] = [
        ("path", path, media[stage])
        for stage in facts.stages
        if stage not in facts.volumes and stage in media
    ]
    places += [
        ("volume", volume, media.get(stage))
        for stage, volumes in facts.volumes.items()
        for volume in volumes
    ]
    return "".join(
        _element(
            "storage",
            _element(
                "contentLocation",
                _text("contentLocationType", kind) + _text("contentLocationValue", place),
            )
            + ("" if medium is None else _text("storageMedium", medium)),
        )
        for kind, place, medium in places
    )


def _events(record: dict[str, Any], agents: dict[str, str]) -> Iterator[str]:
    if record["schema"] != SCHEMA:
        return
    acts = {act["line"] for act in record["acts"]}
    ended_stages = {entry["line"]: entry for entry in record["stages"]}
    for text in record["chain"]["lines"]:
        line = decode_line(text.encode())
        agent = line.by or "milepost"
        kind = "person" if line.version in acts and line.by else "software"
        agents[agent] = "person" if "person" in (kind, agents.get(agent)) else kind
        linked = _identifier("linkingObject", ITEM, _item(record))
        entry = ended_stages.get(line.version)
        if entry is not None:
            linked += "".join(
                _identifier("linkingObject", FILE, _file(record, path))
                for path in reported_files([entry])
            )
        yield _line(
            "event",
            _identifier(
                "event",
                EVENT,
                event_id(
                    record["route"],
                    record["key"],
                    line.version,
                    line.reason.value,
                    line.life,
                    line.epoch,
                ),
            )
            + _text("eventType", EVENT_TYPES.get(line.reason, line.reason.value))
            + _text("eventDateTime", iso(line.at) or "")
            + _element("eventDetailInformation", _text("eventDetail", _detail(line)))
            + _element("eventOutcomeInformation", _outcome(line, entry))
            + _identifier("linkingAgent", AGENT, agent)
            + linked,
        )


def _detail(line: Line) -> str:
    place = f"stage {line.stage}" + (f", on to {line.to}" if line.to else "")
    return f"{line.reason.meaning} ({place})" + (f": {line.why}" if line.why else "")


def _outcome(line: Line, entry: dict[str, Any] | None) -> str:
    notes = [line.note] if isinstance(line.note, str) else []
    if line.attempt is not None:
        notes.append(f"{line.attempt.category}: {line.attempt.message}")
    if line.output is not None:
        notes.append(f"output, sha256 of its canonical JSON: {line.output}")
    if entry is not None and "output" in entry:
        notes.append(canonical_json(entry["output"]).decode())
    return _text("eventOutcome", OUTCOMES.get(line.reason, line.status.value)) + "".join(
        _element("eventOutcomeDetail", _text("eventOutcomeDetailNote", note)) for note in notes
    )


def _item(record: dict[str, Any]) -> str:
    """Identifier of an item. A key that was submitted again after its item had failed has several:
    the later ones are named by their life, as in the ids of their events."""
    named = f"{record['route']}/{record['key']}"
    life = life_of(record)
    return f"{named}/{life}" if life else named


def _file(record: dict[str, Any], path: str) -> str:
    """Identifier of a file. It includes the item, because a path may occur in the outputs of two
    items."""
    return f"{_item(record)}/{path}"


def _identifier(of: str, kind: str, value: str) -> str:
    return _element(
        f"{of}Identifier", _text(f"{of}IdentifierType", kind) + _text(f"{of}IdentifierValue", value)
    )


def _element(name: str, content: str, attributes: str = "") -> str:
    """An element with child elements."""
    return f"<{name}{' ' if attributes else ''}{attributes}>{content}</{name}>"


def _comment(text: str) -> str:
    """Text for an XML comment, which must not contain a double hyphen."""
    return _allowed(text).replace("--", "- -")


def _line(name: str, content: str, attributes: str = "") -> str:
    return _element(name, content, attributes) + "\n"


def _text(name: str, text: str) -> str:
    return f"<{name}>{escape(_allowed(text))}</{name}>"


def _allowed(text: str) -> str:
    """Remove control characters that XML cannot contain."""
    return "".join(
        c if c in "\t\n" or (c >= " " and c not in "￾￿" and not "\ud800" <= c <= "\udfff") else "�"
        for c in text
    )
