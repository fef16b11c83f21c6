"""DynamoDB expressions: conditions, updates and projections, parsed once and evaluated on rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any, NamedTuple

from milepost_aws.aws_model.errors import Malformed, invalid
from milepost_aws.aws_model.reserved_words import RESERVED
from milepost_aws.aws_model.values import SETS, Image, Value, compare, normal, number

_TOKEN = re.compile(
    r"\s*(?:([#:][A-Za-z0-9_]+|[A-Za-z_][A-Za-z0-9_]*|\d+)|(<>|<=|>=|[=<>()+\-,.\[\]]))"
)
_COMPARATORS = ("=", "<>", "<", "<=", ">", ">=")
_CHECKS = ("attribute_exists", "attribute_not_exists", "attribute_type", "begins_with", "contains")
_CLAUSES = ("SET", "REMOVE", "ADD", "DELETE")
_NO_ATTRIBUTE = "The provided expression refers to an attribute that does not exist in the item"
_WRONG_TYPE = "An operand in the update expression has an incorrect data type"
_WRONG_PATH = "The document path provided in the update expression is invalid for update"

Step = str | int
Path = tuple[Step, ...]
"""Path of a value: the attribute, then names in maps and indexes in lists. Placeholders are not
resolved."""


class Scope:
    """The names and values of the placeholders of one call."""

    def __init__(
        self, names: Mapping[str, str] | None = None, values: Mapping[str, Any] | None = None
    ) -> None:
        if names is not None and not names:
            raise invalid("ExpressionAttributeNames must not be empty")
        if values is not None and not values:
            raise invalid("ExpressionAttributeValues must not be empty")
        self.names = names or {}
        self.values = {placeholder: normal(value) for placeholder, value in (values or {}).items()}

    def check(self, parsed: list[Parsed]) -> None:
        """Check that every placeholder is defined, and every definition is used."""
        used = frozenset().union(*(one.placeholders for one in parsed))
        for placeholder in used:
            if placeholder[0] == ":" and placeholder not in self.values:
                raise invalid(
                    f"Invalid expression: An expression attribute value used in expression is not defined; attribute value: {placeholder}"
                )
            if placeholder[0] == "#" and placeholder not in self.names:
                raise invalid(
                    "Invalid expression: An expression attribute name used in the document path is not defined;"
                    f" attribute name: {placeholder}"
                )
        for kind, defined in (("Names", self.names), ("Values", self.values)):
            unused = [placeholder for placeholder in defined if placeholder not in used]
            if unused:
                raise invalid(
                    f"Value provided in ExpressionAttribute{kind} unused in expressions: keys: {{{', '.join(sorted(unused))}}}"
                )

    def path(self, path: Path) -> Path:
        """The path with its placeholders resolved."""
        return tuple(
            self.names[step] if isinstance(step, str) and step[0] == "#" else step for step in path
        )


Operand = Callable[[Image, Scope], Value | None]
Test = Callable[[Image, Scope], bool]


class Action(NamedTuple):
    """One part of an update expression."""

    verb: str
    path: Path
    operand: Operand | None


class Comparison(NamedTuple):
    """A comparison of an attribute with values, as in key conditions."""

    path: Path
    operator: str
    values: tuple[str, ...]


class Parsed:
    """A parsed expression: the placeholders that it uses, and its function."""

    def __init__(self, placeholders: frozenset[str]) -> None:
        self.placeholders = placeholders
        self.test: Test = lambda image, scope: True
        self.actions: list[Action] = []
        self.paths: list[Path] = []
        self.comparisons: list[Comparison] | None = None
        """The comparisons of a condition that only joins comparisons by AND."""


def look_up(image: Image, path: Path) -> Value | None:
    """The value at a path; None: there is none."""
    value: Value | None = image.get(str(path[0]))
    for step in path[1:]:
        if value is None:
            return None
        if isinstance(step, int):
            entries = value.get("L", ())
            value = entries[step] if step < len(entries) else None
        else:
            value = value.get("M", {}).get(step)
    return value


class _Parser:
    def __init__(self, text: Any, kind: str) -> None:
        if not isinstance(text, str):
            raise Malformed
        self.kind, self.text = kind, text
        self.tokens: list[str] = []
        place = 0
        stripped = text.rstrip()
        while place < len(stripped):
            found = _TOKEN.match(stripped, place)
            if found is None:
                raise self.wrong(
                    f'Syntax error; token: "{stripped[place : place + 1]}", near: "{stripped[place : place + 10]}"'
                )
            self.tokens.append(found[1] or found[2])
            place = found.end()
        if not self.tokens:
            raise self.wrong("The expression can not be empty;")
        self.at = 0
        self.comparisons: list[Comparison] | None = []

    def wrong(self, why: str) -> Exception:
        return invalid(f"Invalid {self.kind}: {why}")

    def peek(self, ahead: int = 0) -> str:
        place = self.at + ahead
        return self.tokens[place] if place < len(self.tokens) else ""

    def word(self) -> str:
        return self.peek().upper()

    def take(self) -> str:
        token = self.peek()
        if not token:
            raise self.wrong('Syntax error; token: "<EOF>"')
        self.at += 1
        return token

    def expect(self, token: str) -> None:
        found = self.take()
        if found.upper() != token:
            raise self.wrong(f'Syntax error; token: "{found}"')

    def listed(self, one: Callable[[], Any]) -> list[Any]:
        found = [one()]
        while self.peek() == ",":
            self.take()
            found.append(one())
        return found

    def end(self) -> None:
        if self.peek():
            raise self.wrong(f'Syntax error; token: "{self.peek()}"')

    # Paths and operands ---------------------------------------------------------------------------
    def path(self) -> Path:
        steps: list[Step] = [self.name()]
        while self.peek() in (".", "["):
            if self.take() == ".":
                steps.append(self.name())
            else:
                place = self.take()
                if not place.isdigit():
                    raise self.wrong(f'Syntax error; token: "{place}"')
                steps.append(int(place))
                self.expect("]")
        return tuple(steps)

    def name(self) -> str:
        token = self.take()
        if not (token[0] in "#_" or token[0].isalpha()):
            raise self.wrong(f'Syntax error; token: "{token}"')
        if token.upper() in RESERVED:
            raise self.wrong(f"Attribute name is a reserved keyword; reserved keyword: {token}")
        return token

    def operand(self) -> Operand:
        token = self.peek()
        if token[:1] == ":":
            self.take()
            return lambda image, scope: scope.values[token]
        if self.peek(1) == "(":
            return self.function()
        path = self.path()
        return lambda image, scope: look_up(image, scope.path(path))

    def function(self) -> Operand:
        name = self.take()
        self.expect("(")
        if name == "size":
            path = self.path()
            self.expect(")")
            return lambda image, scope: _size(look_up(image, scope.path(path)))
        if name == "if_not_exists" and self.kind == "UpdateExpression":
            path = self.path()
            self.expect(",")
            other = self.value()
            self.expect(")")
            return lambda image, scope: (
                found
                if (found := look_up(image, scope.path(path))) is not None
                else other(image, scope)
            )
        if name == "list_append" and self.kind == "UpdateExpression":
            first = self.value()
            self.expect(",")
            second = self.value()
            self.expect(")")
            return lambda image, scope: {
                "L": [*_list(first(image, scope)), *_list(second(image, scope))]
            }
        raise self.wrong(f"Invalid function name; function: {name}")

    def value(self) -> Operand:
        """An operand of SET, or the sum or difference of two."""
        left = self.operand()
        if self.peek() not in ("+", "-"):
            return left
        sign = self.take()
        right = self.operand()
        return lambda image, scope: _sum(left(image, scope), right(image, scope), sign)

    # Conditions -----------------------------------------------------------------------------------
    def either(self) -> Test:
        tests = [self.both()]
        while self.word() == "OR":
            self.take()
            tests.append(self.both())
        if len(tests) == 1:
            return tests[0]
        self.comparisons = None
        return lambda image, scope: any(test(image, scope) for test in tests)

    def both(self) -> Test:
        tests = [self.negated()]
        while self.word() == "AND":
            self.take()
            tests.append(self.negated())
        return (
            tests[0]
            if len(tests) == 1
            else lambda image, scope: all(test(image, scope) for test in tests)
        )

    def negated(self) -> Test:
        if self.word() == "NOT":
            self.take()
            self.comparisons = None
            test = self.negated()
            return lambda image, scope: not test(image, scope)
        return self.primary()

    def primary(self) -> Test:
        if self.peek() == "(":
            self.take()
            test = self.either()
            self.expect(")")
            return test
        if self.peek() in _CHECKS and self.peek(1) == "(":
            return self.check()
        start = self.at
        left = self.operand()
        operator = self.take()
        if operator in _COMPARATORS:
            right = self.operand()
            self.note(start, operator, self.tokens[self.at - 1 : self.at])
            return lambda image, scope: compare(operator, left(image, scope), right(image, scope))
        if operator.upper() == "BETWEEN":
            low = self.operand()
            first = self.tokens[self.at - 1]
            self.expect("AND")
            high = self.operand()
            self.note(start, "BETWEEN", [first, self.tokens[self.at - 1]])
            return lambda image, scope: (
                compare(">=", left(image, scope), low(image, scope))
                and compare("<=", left(image, scope), high(image, scope))
            )
        if operator.upper() == "IN":
            self.comparisons = None
            self.expect("(")
            others = self.listed(self.operand)
            self.expect(")")
            return lambda image, scope: any(
                compare("=", left(image, scope), other(image, scope)) for other in others
            )
        raise self.wrong(f'Syntax error; token: "{operator}"')

    def check(self) -> Test:
        start, name = self.at, self.take()
        self.expect("(")
        path = self.path()
        if name == "attribute_exists":
            test: Test = lambda image, scope: look_up(image, scope.path(path)) is not None  # noqa: E731
        elif name == "attribute_not_exists":
            test = lambda image, scope: look_up(image, scope.path(path)) is None  # noqa: E731
        else:
            self.expect(",")
            other = self.operand()
            call = {"attribute_type": _is_type, "begins_with": _begins, "contains": _contains}[name]
            test = lambda image, scope: call(look_up(image, scope.path(path)), other(image, scope))  # noqa: E731
            if name == "begins_with":
                self.note(start + 2, name, [self.tokens[self.at - 1]])
                self.expect(")")
                return test
        self.comparisons = None
        self.expect(")")
        return test

    def note(self, start: int, operator: str, values: list[str]) -> None:
        """Keep the comparison, if it compares an attribute with values."""
        name = self.tokens[start]
        plain = all(value[0] == ":" for value in values) and (
            name[0] == "#" or name[0].isalpha() or name[0] == "_"
        )
        if self.comparisons is None or not plain or self.tokens[start + 1] in (".", "["):
            self.comparisons = None
        else:
            self.comparisons.append(Comparison((name,), operator, tuple(values)))

    # Updates --------------------------------------------------------------------------------------
    def actions(self) -> list[Action]:
        found: list[Action] = []
        seen: set[str] = set()
        while self.peek():
            verb = self.take().upper()
            if verb not in _CLAUSES:
                raise self.wrong(f'Syntax error; token: "{verb}"')
            if verb in seen:
                raise self.wrong(
                    f'The "{verb}" section can only be used once in an update expression;'
                )
            seen.add(verb)
            found += self.listed(partial(self.action, verb))
        return found

    def action(self, verb: str) -> Action:
        path = self.path()
        if verb == "REMOVE":
            return Action(verb, path, None)
        if verb == "SET":
            self.expect("=")
            return Action(verb, path, self.value())
        return Action(verb, path, self.operand())


@lru_cache(maxsize=4096)
def condition(text: str, kind: str = "ConditionExpression") -> Parsed:
    """A condition, a filter or a key condition."""
    parser = _Parser(text, kind)
    parsed = Parsed(_placeholders(parser))
    parsed.test = parser.either()
    parser.end()
    parsed.comparisons = parser.comparisons
    return parsed


@lru_cache(maxsize=4096)
def update(text: str) -> Parsed:
    parser = _Parser(text, "UpdateExpression")
    parsed = Parsed(_placeholders(parser))
    parsed.actions = parser.actions()
    return parsed


@lru_cache(maxsize=1024)
def projection(text: str) -> Parsed:
    parser = _Parser(text, "ProjectionExpression")
    parsed = Parsed(_placeholders(parser))
    parsed.paths = parser.listed(parser.path)
    parser.end()
    return parsed


def _placeholders(parser: _Parser) -> frozenset[str]:
    return frozenset(token for token in parser.tokens if token[0] in "#:")


def _size(value: Value | None) -> Value | None:
    if value is None:
        return None
    ((kind, content),) = value.items()
    if kind in ("N", "BOOL", "NULL"):
        return None
    return {"N": str(len(content.encode()) if kind == "S" else len(content))}


def _list(value: Value | None) -> list[Value]:
    if value is None:
        raise invalid(_NO_ATTRIBUTE)
    if "L" not in value:
        raise invalid(_WRONG_TYPE)
    entries: list[Value] = value["L"]
    return entries


def _sum(left: Value | None, right: Value | None, sign: str) -> Value:
    if left is None or right is None:
        raise invalid(_NO_ATTRIBUTE)
    if "N" not in left or "N" not in right:
        raise invalid(_WRONG_TYPE)
    one, other = Decimal(left["N"]), Decimal(right["N"])
    return {"N": number(str(one + other if sign == "+" else one - other))}


def _is_type(value: Value | None, wanted: Value | None) -> bool:
    return value is not None and wanted is not None and next(iter(value)) == wanted.get("S")


def _begins(value: Value | None, start: Value | None) -> bool:
    if value is None or start is None or next(iter(value)) != next(iter(start)):
        return False
    content = next(iter(value.values()))
    return isinstance(content, (str, bytes)) and content.startswith(next(iter(start.values())))


def _contains(value: Value | None, part: Value | None) -> bool:
    if value is None or part is None:
        return False
    ((kind, content),) = value.items()
    ((part_kind, wanted),) = part.items()
    if kind == "L":
        return part in content
    if kind in SETS:
        return SETS[kind] == part_kind and wanted in content
    return kind == part_kind and kind in ("S", "B") and wanted in content


# Carrying out -------------------------------------------------------------------------------------
def project(image: Image, paths: list[Path]) -> Image:
    """The parts of a row that a projection names."""
    whole = {str(path[0]) for path in paths if len(path) == 1}
    found: Image = {name: value for name, value in image.items() if name in whole}
    for path in paths:
        if len(path) == 1:
            continue
        value = look_up(image, path)
        if value is None:
            continue
        for step in reversed(path[1:]):
            value = {"L": [value]} if isinstance(step, int) else {"M": {step: value}}
        name = str(path[0])
        found[name] = _merged(found[name], value) if name in found else value
    return found


def _merged(one: Value, other: Value) -> Value:
    if "M" in one and "M" in other:
        merged = dict(one["M"])
        for name, value in other["M"].items():
            merged[name] = _merged(merged[name], value) if name in merged else value
        return {"M": merged}
    if "L" in one and "L" in other:
        return {"L": [*one["L"], *other["L"]]}
    return one


def apply(
    image: Image, parsed: Parsed, scope: Scope, key: tuple[str, ...]
) -> tuple[Image, list[str]]:
    """The row after the update, and the attributes that it names. All operands are read from the
    row as it was."""
    paths = [scope.path(action.path) for action in parsed.actions]
    _check_paths(paths, key)
    changes = [
        (action, path, action.operand(image, scope) if action.operand else None)
        for action, path in zip(parsed.actions, paths, strict=True)
    ]
    after = dict(image)
    copied: set[str] = set()
    removed: list[Path] = []
    for action, path, value in changes:
        name = str(path[0])
        if len(path) > 1 and name in after and name not in copied:
            after[name] = _unshared(after[name])
            copied.add(name)
        if action.verb == "SET":
            if value is None:
                raise invalid(_NO_ATTRIBUTE)
            _set(after, path, value)
        elif action.verb == "REMOVE":
            removed.append(path)
        else:
            present = look_up(after, path)
            changed = (_added if action.verb == "ADD" else _without)(present, value)
            if changed is not None:
                _set(after, path, changed)
            elif present is not None:
                removed.append(path)
    # The last indexes first: indexes refer to the row before the update.
    for path in sorted(
        removed,
        key=lambda path: [step if isinstance(step, int) else -1 for step in path],
        reverse=True,
    ):
        _remove(after, path)
    return after, [str(path[0]) for path in paths]


def _unshared(value: Value) -> Value:
    ((kind, content),) = value.items()
    if kind == "L":
        return {"L": [_unshared(one) for one in content]}
    if kind == "M":
        return {"M": {name: _unshared(one) for name, one in content.items()}}
    return value


def _check_paths(paths: list[Path], key: tuple[str, ...]) -> None:
    for path in paths:
        if path[0] in key:
            raise invalid(
                f"One or more parameter values were invalid: Cannot update attribute {path[0]}. This attribute is part of the key"
            )
    tops = [path[0] for path in paths]
    if len(set(tops)) == len(tops):
        return
    for nth, one in enumerate(paths):
        for other in paths[nth + 1 :]:
            shorter = min(len(one), len(other))
            if one[:shorter] == other[:shorter]:
                raise invalid(
                    "Invalid UpdateExpression: Two document paths overlap with each other; must remove or rewrite one of these paths"
                )


def _parent(image: Image, path: Path) -> Value:
    found = look_up(image, path[:-1])
    if found is None or ("L" if isinstance(path[-1], int) else "M") not in found:
        raise invalid(_WRONG_PATH)
    return found


def _set(image: Image, path: Path, value: Value) -> None:
    if len(path) == 1:
        image[str(path[0])] = value
        return
    parent, step = _parent(image, path), path[-1]
    if isinstance(step, str):
        parent["M"][step] = value
    elif step < len(parent["L"]):
        parent["L"][step] = value
    else:
        parent["L"].append(value)


def _remove(image: Image, path: Path) -> None:
    if len(path) == 1:
        image.pop(str(path[0]), None)
        return
    parent, step = _parent(image, path), path[-1]
    if isinstance(step, str):
        parent["M"].pop(step, None)
    elif step < len(parent["L"]):
        del parent["L"][step]


def _added(present: Value | None, more: Value | None) -> Value:
    if more is None:
        raise invalid(_NO_ATTRIBUTE)
    ((kind, content),) = more.items()
    if kind != "N" and kind not in SETS:
        raise invalid(
            "Invalid UpdateExpression: Incorrect operand type for operator or function; operator: ADD"
        )
    if present is None:
        return more
    if kind not in present:
        raise invalid(_WRONG_TYPE)
    if kind == "N":
        return _sum(present, more, "+")
    return normal({kind: list({*present[kind], *content})})


def _without(present: Value | None, less: Value | None) -> Value | None:
    if less is None:
        raise invalid(_NO_ATTRIBUTE)
    ((kind, content),) = less.items()
    if kind not in SETS:
        raise invalid(
            "Invalid UpdateExpression: Incorrect operand type for operator or function; operator: DELETE"
        )
    if present is None:
        return None
    if kind not in present:
        raise invalid(_WRONG_TYPE)
    left = [member for member in present[kind] if member not in content]
    return {kind: left} if left else None
