"""The structure of PREMIS 3, as far as Milepost writes it: which elements stand in which, in what
order, how often.

Written from the schema's published content models (premis-v3-0.xsd).
"""

from __future__ import annotations

from xml.etree import ElementTree

NAMESPACE = "http://www.loc.gov/premis/v3"
XSI_TYPE = "{http://www.w3.org/2001/XMLSchema-instance}type"

ONE, MAYBE, SOME, ANY = (1, 1), (0, 1), (1, None), (0, None)
Model = list[tuple[str, tuple[int, int | None]]]


def _identifier(name: str) -> Model:
    return [(f"{name}IdentifierType", ONE), (f"{name}IdentifierValue", ONE)]


CHILDREN: dict[str, Model] = {
    "premis": [("object", SOME), ("event", ANY), ("agent", ANY), ("rights", ANY)],
    "object:intellectualEntity": [
        ("objectIdentifier", SOME), ("preservationLevel", ANY), ("significantProperties", ANY), ("originalName", MAYBE),
        ("relationship", ANY), ("linkingEventIdentifier", ANY), ("linkingRightsStatementIdentifier", ANY),
    ],
    "object:file": [
        ("objectIdentifier", SOME), ("preservationLevel", ANY), ("significantProperties", ANY), ("objectCharacteristics", SOME),
        ("originalName", MAYBE), ("storage", ANY), ("signatureInformation", ANY), ("relationship", ANY),
        ("linkingEventIdentifier", ANY), ("linkingRightsStatementIdentifier", ANY),
    ],
    "objectIdentifier": _identifier("object"),
    "significantProperties": [
        ("significantPropertiesType", MAYBE), ("significantPropertiesValue", MAYBE), ("significantPropertiesExtension", ANY),
    ],
    "objectCharacteristics": [
        ("compositionLevel", MAYBE), ("fixity", ANY), ("size", MAYBE), ("format", SOME), ("creatingApplication", ANY),
        ("inhibitors", ANY), ("objectCharacteristicsExtension", ANY),
    ],
    "fixity": [("messageDigestAlgorithm", ONE), ("messageDigest", ONE), ("messageDigestOriginator", MAYBE)],
    "format": [("formatDesignation", ONE), ("formatRegistry", MAYBE), ("formatNote", ANY)],
    "formatDesignation": [("formatName", ONE), ("formatVersion", MAYBE)],
    "storage": [("contentLocation", ONE), ("storageMedium", MAYBE)],
    "contentLocation": [("contentLocationType", ONE), ("contentLocationValue", ONE)],
    "relationship": [
        ("relationshipType", ONE), ("relationshipSubType", ONE), ("relatedObjectIdentifier", ANY), ("relatedEventIdentifier", ANY),
        ("relatedEnvironmentPurpose", ANY), ("relatedEnvironmentCharacteristic", MAYBE),
    ],
    "relatedObjectIdentifier": [*_identifier("relatedObject"), ("relatedObjectSequence", MAYBE)],
    "event": [
        ("eventIdentifier", ONE), ("eventType", ONE), ("eventDateTime", ONE), ("eventDetailInformation", ANY),
        ("eventOutcomeInformation", ANY), ("linkingAgentIdentifier", ANY), ("linkingObjectIdentifier", ANY),
    ],
    "eventIdentifier": _identifier("event"),
    "eventDetailInformation": [("eventDetail", MAYBE), ("eventDetailExtension", ANY)],
    "eventOutcomeInformation": [("eventOutcome", MAYBE), ("eventOutcomeDetail", ANY)],
    "eventOutcomeDetail": [("eventOutcomeDetailNote", MAYBE), ("eventOutcomeDetailExtension", ANY)],
    "linkingAgentIdentifier": [*_identifier("linkingAgent"), ("linkingAgentRole", ANY)],
    "linkingObjectIdentifier": [*_identifier("linkingObject"), ("linkingObjectRole", ANY)],
    "agent": [("agentIdentifier", SOME), ("agentName", ANY), ("agentType", MAYBE), ("agentVersion", MAYBE), ("agentNote", ANY)],
    "agentIdentifier": _identifier("agent"),
}  # fmt: skip


def faults(text: str) -> list[str]:
    """What in this document the schema would not have."""
    root = ElementTree.fromstring(text)
    found: list[str] = []
    if root.tag != f"{{{NAMESPACE}}}premis" or root.get("version") != "3.0":
        found.append(f"the root is {root.tag}, version {root.get('version')}")
    _check(root, "premis", found)
    return found


def _check(element: ElementTree.Element, name: str, found: list[str]) -> None:
    kind = element.get(XSI_TYPE)
    if name == "object":
        name = f"object:{kind}"
    elif kind is not None:
        found.append(f"{name} has an xsi:type")
    model = CHILDREN.get(name)
    if model is None:
        if len(element) or name.startswith("object:"):
            found.append(f"{name} is not known, or may have no elements in it")
        if not (element.text or "").strip():
            found.append(f"{name} is empty")
        return
    if (element.text or "").strip():
        found.append(f"{name} has text between its elements")
    children = [child.tag.removeprefix(f"{{{NAMESPACE}}}") for child in element]
    order = [place for place, _ in model]
    unknown = [child for child in children if child not in order]
    if unknown:
        found.append(f"{name} has {unknown}")
        return
    if sorted(children, key=order.index) != children:
        found.append(f"{name}: {children} are not in order")
    for place, (least, most) in model:
        count = children.count(place)
        if count < least or (most is not None and count > most):
            found.append(f"{name} has {count} {place}")
    for child, child_name in zip(element, children, strict=True):
        _check(child, child_name, found)
