"""The API reference as a page, made from the OpenAPI document, without any script."""

from __future__ import annotations

import re
from typing import Any

from markupsafe import Markup, escape

from milepost.http.dashboard.render import page
from milepost.http.openapi.openapi import whole
from milepost.http.protocol.endpoint import Answer, Call, Endpoints
from milepost.http.state.state import ServerState

ENDPOINTS = Endpoints()


def rendered(state: ServerState, call: Call, document: dict[str, Any]) -> Answer:
    """The page for this document."""
    by_tag: dict[str, list[dict[str, Any]]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            by_tag.setdefault(operation["tags"][0], []).append({"method": method.upper(), "path": path, **operation})
    schemas = document["components"]["schemas"]
    return page(state, call, "api.html", here="/api/docs", info=document["info"], by_tag=by_tag, schemas=schemas, shape=shape, said=said)


def said(text: str) -> Markup:
    """A description, with text between backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def shape(schema: dict[str, Any]) -> str:
    """A schema in a few words: 'integer', 'list of string', 'Taken or Report'."""
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " or ".join(shape(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    kind = str(schema.get("type", "anything"))
    if "prefixItems" in schema:
        return f"[{', '.join(shape(one) for one in schema['prefixItems'])}]"
    if kind == "array":
        return f"list of {shape(schema.get('items', {}))}"
    within = [f"{word} {schema[name]}" for name, word in (("minimum", "at least"), ("maximum", "at most")) if name in schema]
    return f"{kind}, {', '.join(within)}" if within else kind


@ENDPOINTS.add("GET", "/api/docs", scope=None, answers={200: str}, summary="The API reference, as a page")
def docs(state: ServerState, call: Call) -> Answer:
    """For people."""
    return rendered(state, call, whole(state))
