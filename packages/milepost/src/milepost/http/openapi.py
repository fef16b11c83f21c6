"""OpenAPI 3.1 document, generated from the endpoints, so that it always describes what is served;
and the same as a page, without any script."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec
from markupsafe import Markup, escape
from msgspec import Struct

from milepost.http.dashboard.render import page
from milepost.http.protocol.endpoint import Answer, Call, Endpoint, endpoint
from milepost.http.protocol.problems import TITLES, TYPE
from milepost.http.state.state import ServerState

DESCRIBED = ("/api/v1/", "/api/openapi.json", "/healthz", "/readyz", "/metrics")
"""Prefix of the paths for programs. The other paths are pages for people."""
ALWAYS = ("wrong-value", "malformed", "too-many", "failed", "busy", "unavailable")
IN_PATH = {"{route}": "unknown-route", "{stage}": "unknown-stage", "{key:path}": "unknown-item"}
"""Problems of a call that names a route, or a stage or an item of it."""
WITH_A_KEY = ("no-key", "not-allowed", "bad-origin")
WITH_A_BODY = ("too-large", "wrong-type", "too-slow")
SAMPLES: dict[str, str] = {
    "application/x-ndjson": '{"id": "a"}\n{"id": "b"}\n',
    "text/csv": "id,weight\na,340\nb,120\n",
    "text/plain": "a\nb\n",
}
_PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")
_PARAMETERS = {
    "route": "The route's name",
    "key": "The item's key, percent-encoded",
    "id": "An id",
    "stage": "The stage's name",
}
_ABOUT = """Items travel a route of stages; one ledger says where each of them is. Every write is on disk when it is answered, and may be
repeated: nothing is recorded twice. Every error has the same shape (application/problem+json) with a `code` whose meaning never changes."""
_PROBLEM = {
    "type": "object",
    "description": "An error (RFC 9457). Some codes have more fields.",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string", "enum": sorted(TITLES)},
        "detail": {"type": "string", "description": "What is wrong with this call."},
        "field": {"type": "string", "description": "The wrong field or parameter."},
        "expected": {"type": "string", "description": "A correct value."},
    },
    "required": ["type", "title", "status", "code", "detail"],
}


def described(endpoints: Sequence[Endpoint]) -> list[Endpoint]:
    """The endpoints for programs."""
    theirs = [
        one for one in endpoints if one.application and not one.page and one.method != "OPTIONS"
    ]
    return [
        one for one in endpoints if not one.application and one.path.startswith(DESCRIBED)
    ] + theirs


def document(endpoints: Sequence[Endpoint], version: str) -> dict[str, Any]:
    """The whole document."""
    api = described(endpoints)
    # An application's types are named separately: they must not change the names of ours.
    schemas = {
        name: _Schemas([one for one in api if one.application == name], name)
        for name in dict.fromkeys(one.application for one in api)
    }
    paths: dict[str, dict[str, Any]] = {}
    for one in api:
        at = paths.setdefault(_PARAMETER.sub(r"{\1}", one.path), {})
        at[one.method.lower()] = _operation(one, schemas[one.application])
    components = {
        name: part for found in schemas.values() for name, part in found.components.items()
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Milepost", "version": version, "description": _ABOUT},
        "paths": paths,
        "components": {
            "schemas": {"Problem": _PROBLEM, **components},
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A key made by 'milepost keys new'.",
                }
            },
        },
    }


class _Schemas:
    """The schema of every type that endpoints take and return; those of queries are split into
    parameters."""

    def __init__(self, endpoints: Sequence[Endpoint], application: str) -> None:
        prefix = f"{application}." if application else ""
        queries = {endpoint.query for endpoint in endpoints if endpoint.query is not None}
        bodies = [part for endpoint in endpoints for part in _parts(endpoint.body)]
        types = list(
            dict.fromkeys(
                [
                    *bodies,
                    *(
                        part
                        for e in endpoints
                        for kind in e.answers.values()
                        for part in _parts(kind)
                    ),
                ]
            )
        )
        template = f"#/components/schemas/{prefix}{{name}}"
        found, parts = msgspec.json.schema_components(types, ref_template=template)
        self._of = dict(zip(types, found, strict=True))
        self._queries: dict[type[Struct], dict[str, Any]] = {}
        for query in queries:
            (reference,), named = msgspec.json.schema_components([query], ref_template=template)
            self._queries[query] = named[reference["$ref"].rpartition("/")[2].removeprefix(prefix)]
        self.components = {prefix + name: _described(part) for name, part in parts.items()}

    def of(self, kind: Any) -> dict[str, Any]:
        parts = [self._of[part] for part in _parts(kind)]
        return parts[0] if len(parts) == 1 else {"anyOf": parts}

    def parameters(self, query: type[Struct]) -> list[dict[str, Any]]:
        known = self._queries[query]
        return [
            {
                "name": name,
                "in": "query",
                "required": name in known["required"],
                "schema": _without_null(schema),
            }
            for name, schema in known["properties"].items()
        ]


def _described(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with its docstring as Python 3.13 keeps it: without the indentation in the
    source."""
    if "description" in schema:
        return {**schema, "description": inspect.cleandoc(schema["description"])}
    return schema


def _parts(kind: Any) -> list[Any]:
    """The types of a union; a single type is a union of one. None: no type."""
    if kind is None:
        return []
    return (
        [part for part in get_args(kind) if part is not type(None)]
        if get_origin(kind) in (Union, UnionType)
        else [kind]
    )


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without null: a query parameter is either given or absent."""
    rest = {name: value for name, value in schema.items() if name not in ("anyOf", "default")}
    if schema.get("default") not in (None, [], ""):
        rest["default"] = schema["default"]
    kinds = [kind for kind in schema.get("anyOf", []) if kind != {"type": "null"}]
    return rest | (kinds[0] if len(kinds) == 1 else {"anyOf": kinds} if kinds else {})


def _operation(endpoint: Endpoint, schemas: _Schemas) -> dict[str, Any]:
    module = endpoint.application or endpoint.handler.__module__.rpartition(".")[2]
    in_path = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string"},
            "description": _PARAMETERS.get(name, name),
        }
        for name in _PARAMETER.findall(endpoint.path)
    ]
    text = _unwrapped(endpoint.description)
    needs = (
        "Open to all."
        if endpoint.scope is None
        else f"Needs a key with the scope `{endpoint.scope}`."
    )
    operation: dict[str, Any] = {
        "operationId": f"{module}_{endpoint.name or endpoint.handler.__name__}",
        "tags": [module],
        "summary": endpoint.summary,
        "description": f"{text}\n\n{needs}".strip(),
        "parameters": in_path
        + ([] if endpoint.query is None else schemas.parameters(endpoint.query)),
        "security": [] if endpoint.scope is None else [{"key": []}],
        "responses": _responses(endpoint, schemas),
    }
    if endpoint.body is not None:
        content = {
            kind: {
                "schema": schemas.of(endpoint.body) if kind not in SAMPLES else {"type": "string"}
            }
            for kind in endpoint.types
        }
        for kind in endpoint.types:
            if kind in SAMPLES:
                content[kind]["example"] = SAMPLES[kind]  # type: ignore[assignment]
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _unwrapped(text: str) -> str:
    """The paragraphs of a docstring, each on one line: the code's width is no part of the text."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _responses(endpoint: Endpoint, schemas: _Schemas) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, kind in sorted(endpoint.answers.items()):
        parts = _parts(kind)
        first = (
            ""
            if not parts
            else (getattr(parts[0], "__doc__", "") or "")
            if isinstance(parts[0], type(Struct))
            else ""
        )
        responses[str(status)] = {"description": " ".join(first.split()) or "Done."}
        if parts:
            responses[str(status)]["content"] = {
                "text/plain" if kind is str else "application/json": {"schema": schemas.of(kind)}
            }
    by_status: dict[int, list[str]] = {}
    for code in possible(endpoint):
        by_status.setdefault(TITLES[code][0], []).append(code)
    for number, codes in sorted(by_status.items()):
        entry = responses.setdefault(str(number), {"description": ""})
        words = "; ".join(f"`{code}`: {TITLES[code][1]}" for code in codes)
        entry["description"] = f"{entry['description']} {words}".strip()
        entry.setdefault("content", {})[TYPE] = {"schema": {"$ref": "#/components/schemas/Problem"}}
    return responses


def possible(endpoint: Endpoint) -> list[str]:
    """The codes of all problems that this endpoint may answer with."""
    named = (
        []
        if endpoint.application
        else [code for variable, code in IN_PATH.items() if variable in endpoint.path]
    )
    codes = [*named, *endpoint.problems, *ALWAYS]
    codes += WITH_A_KEY if endpoint.scope is not None else ()
    codes += WITH_A_BODY if endpoint.body is not None else ()
    return list(dict.fromkeys(codes))


def whole(state: ServerState) -> dict[str, Any]:
    """The document for all endpoints of this server."""
    from milepost import __version__

    return state.ttl_cache.once(("openapi",), lambda: document(state.endpoints, __version__))


@endpoint("GET", "/api/openapi.json", scope=None, summary="This description (OpenAPI 3.1)")
def openapi(state: ServerState, call: Call) -> dict[str, Any]:
    """For client generators and validators."""
    return {**whole(state), "servers": [{"url": state.base or "/"}]}


def rendered(state: ServerState, call: Call, document: dict[str, Any]) -> Answer:
    """The page for this document."""
    by_tag: dict[str, list[dict[str, Any]]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            by_tag.setdefault(operation["tags"][0], []).append(
                {"method": method.upper(), "path": path, **operation}
            )
    schemas = document["components"]["schemas"]
    return page(
        state,
        call,
        "api.html",
        here="/api/docs",
        info=document["info"],
        by_tag=by_tag,
        schemas=schemas,
        shape=shape,
        said=said,
    )


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
    within = [
        f"{word} {schema[name]}"
        for name, word in (("minimum", "at least"), ("maximum", "at most"))
        if name in schema
    ]
    return f"{kind}, {', '.join(within)}" if within else kind


@endpoint(
    "GET", "/api/docs", scope=None, answers={200: str}, summary="The API reference, as a page"
)
def docs(state: ServerState, call: Call) -> Answer:
    """For people."""
    return rendered(state, call, whole(state))
