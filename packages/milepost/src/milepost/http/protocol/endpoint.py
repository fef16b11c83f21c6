"""Endpoints: method, path, scope, and the types that they take and return. The OpenAPI document is
made from the same declarations."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints
from urllib.parse import quote

import msgspec
from msgspec import Struct

from milepost.core.values.field_faults import field_fault
from milepost.core.values.json import DEEPEST, json_fault, name_given_twice
from milepost.http.protocol.problems import Problem, problem_error

if TYPE_CHECKING:
    from milepost.http.state.state import ServerState

END = r"$(?!\n)"
"""End of a regular expression for a value. In Python "$" also matches before a final line end; in
the JSON Schema dialect it does not."""


class Caller(Struct, frozen=True):
    """The caller: a key, a person in a session, or, on loopback while there are no keys, any local
    user."""

    name: str
    scopes: frozenset[str]
    routes: frozenset[str] | None = None
    """The routes that it sees; None: all."""
    attributes: Mapping[str, str] = {}
    """The attributes of its key, which applications give a meaning to, such as the sender that it
    speaks for."""

    def may(self, scope: str) -> bool:
        return scope in self.scopes or "admin" in self.scopes

    def sees(self, route: str) -> bool:
        return self.routes is None or route in self.routes

    @property
    def narrowed(self) -> Callable[[str], bool] | None:
        """A test for the routes that the caller sees; None for a caller who sees all."""
        return None if self.routes is None else self.sees


class Call(Struct, frozen=True):
    """One parsed call. `query` and `body` have the endpoint's own types; `path` has the variables
    of the path."""

    caller: Caller
    path: Mapping[str, str]
    query: Any = None
    body: Any = None
    headers: Mapping[str, str] = {}
    raw: Any = None
    """The request itself, for bodies and answers that are streamed."""


class Answer(Struct, frozen=True):
    """An answer: a status and plain values, a Struct, or a finished response."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = {}


Handler = Callable[["ServerState", Call], Any]
"""Returns an `Answer`, or the body of one with the status 200; or is a coroutine function for
it."""
H = TypeVar("H", bound=Handler)


class Endpoint(Struct, frozen=True):
    method: str
    path: str
    handler: Handler
    scope: str | None
    """None: no key is needed (health)."""
    query: type[Struct] | None = None
    body: Any = None
    answers: Mapping[int, Any] = {}
    """By status: the type of the body, or None."""
    problems: tuple[str, ...] = ()
    """Codes of problems beside those that every endpoint may have, and those of the route, stage or
    item in its path."""
    summary: str = ""
    description: str = ""
    types: tuple[str, ...] = ("application/json",)
    """The media types that its body may have."""
    largest: int | None = None
    """Maximum size of its body in bytes, if it is not the usual one."""
    writes: bool = True
    """False: it only reads, although the method is not GET."""
    page: bool = False
    """It is for people: problems are shown as a page, and a caller without a session is redirected
    to the log-in."""
    is_async: bool = False
    """Its handler is awaited by the event loop; otherwise it is called in a thread of the state."""
    long: bool = False
    """It can take long: it is called in a thread of acts, so that other calls do not wait for
    it."""
    application: str = ""
    """The application that declared it; empty: it is Milepost's own."""
    origins: frozenset[str] = frozenset()
    """Origins, such as https://example.org, whose pages may call it from a browser."""
    name: str = ""
    """Its name in the OpenAPI document; empty: that of its handler."""
    on_problem: Callable[[Problem], Answer] | None = None
    """Formats the answer of an error, for an endpoint with an error format of its own."""


ENDPOINTS: dict[str, list[Endpoint]] = {}
"""All endpoints, by the module that declares them."""


def endpoint(method: str, path: str, *, scope: str | None, **declared: Any) -> Callable[[H], H]:
    """Declare an endpoint, with these fields of `Endpoint`. Its description is by default the
    handler's docstring, and the type of its answer the one that the handler returns, if it is not
    `Answer`."""

    def declare(handler: H) -> H:
        returned = get_type_hints(handler)["return"]
        derived: dict[str, Any] = {
            "answers": {} if returned is Answer else {200: returned},
            "description": (handler.__doc__ or "").strip(),
            "writes": method not in ("GET", "HEAD"),
            "is_async": inspect.iscoroutinefunction(handler),
        }
        ENDPOINTS.setdefault(handler.__module__, []).append(
            Endpoint(method, path, handler, scope, **derived | declared)
        )
        return handler

    return declare


def endpoint_at_each(
    method: str, places: Mapping[str, tuple[str, str, str]], **declared: Any
) -> Callable[[H], H]:
    """Declare a handler at several places; by its name at each: path, summary and description."""

    def declare(handler: H) -> H:
        for name, (path, summary, description) in places.items():
            endpoint(method, path, summary=summary, name=name, description=description, **declared)(
                handler
            )
        return handler

    return declare


def read_query(given: Mapping[str, list[str]], wanted: type[Struct] | None) -> Any:
    """The query as the endpoint's own type; raises a problem that names the parameter."""
    if wanted is None:
        if given:
            raise problem_error(
                "wrong-value",
                f"{next(iter(given))!r} is no parameter here",
                field=next(iter(given)),
                expected="none",
            )
        return None
    several = _parameters(wanted)
    plain: dict[str, Any] = {}
    for name, values in given.items():
        if name not in several:
            raise problem_error(
                "wrong-value",
                f"{name!r} is no parameter here",
                field=name,
                expected=", ".join(several),
            )
        plain[name] = values if several[name] else values[-1]
    try:
        return msgspec.convert(plain, wanted, strict=False)
    except msgspec.ValidationError as error:
        raise _wrong(error, "a parameter", wanted) from None


@cache
def _parameters(wanted: type[Struct]) -> dict[str, bool]:
    """Each parameter, and whether it may be given several times. (Cached, because msgspec reads the
    annotations each time.)"""
    return {
        found.encode_name: any(word in str(found.type) for word in ("list[", "frozenset["))
        for found in msgspec.structs.fields(wanted)
    }


def read_body(data: bytes, wanted: Any) -> Any:
    """The body as the endpoint's own type; raises a problem that names the field."""
    try:
        body = msgspec.json.decode(data, type=wanted)
    except msgspec.ValidationError as error:
        raise _wrong(error, "the body", wanted) from None
    except RecursionError:
        raise problem_error(
            "malformed",
            "the body is nested too deeply to be read",
            expected=f"JSON of at most {DEEPEST} levels",
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise problem_error(
            "malformed", f"the body is not JSON: {json_fault(data, error)}", expected="JSON"
        ) from None
    twice = name_given_twice(data)
    if twice is not None:
        raise problem_error(
            "malformed", f"the body gives {twice!r} twice", field=twice, expected="each name once"
        )
    return body


def read_fields(given: Mapping[str, str], wanted: type[Struct]) -> Any:
    """The fields of a form as the endpoint's own type; raises a problem that names the field.
    Unknown fields are ignored."""
    try:
        return msgspec.convert(
            {name: text for name, text in given.items() if name in _parameters(wanted)},
            wanted,
            strict=False,
        )
    except msgspec.ValidationError as error:
        raise _wrong(error, "the form", wanted) from None


def _wrong(error: msgspec.ValidationError, what: str, wanted: Any) -> Exception:
    fault = field_fault(error, wanted)
    return problem_error(
        "wrong-value",
        f"{what} is wrong: {fault.text}",
        field=fault.field or None,
        expected=fault.expected,
    )


def media_type(headers: Mapping[str, str]) -> str:
    """The media type of a body, without its parameters; empty if there is none."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def attachment(name: str) -> dict[str, str]:
    """The header of a response that the browser saves as a file of this name; a header allows ASCII
    only."""
    plain = name.isascii() and name.isprintable() and '"' not in name and "\\" not in name
    shown = f'filename="{name}"' if plain else f"filename*=UTF-8''{quote(name, safe='')}"
    return {"Content-Disposition": f"attachment; {shown}"}
