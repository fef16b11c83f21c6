"""DynamoDB attribute values: checked, normalised, copied, measured and compared."""

from __future__ import annotations

import marshal
from decimal import Context, Decimal, DecimalException, Inexact
from typing import Any

from milepost_aws.aws_model.errors import AwsError, Malformed, invalid

Value = dict[str, Any]
Image = dict[str, Value]

DEEPEST = 32
LARGEST_ROW = 400 * 1024
SETS = {"SS": "S", "NS": "N", "BS": "B"}
_DIGITS = Context(prec=38, traps=[Inexact])


def copy(image: Any) -> Any:
    """A copy that shares nothing with the original."""
    return marshal.loads(marshal.dumps(image))


def normal_image(image: Any) -> Image:
    """A row as it is stored: numbers and sets in their one normal form."""
    if not isinstance(image, dict):
        raise Malformed
    return {name: normal(value) for name, value in image.items()}


def normal(value: Any, depth: int = 0) -> Value:
    """The value in its normal form, so that equal values are equal Python objects. Raises for
    values that DynamoDB refuses."""
    if not isinstance(value, dict):
        raise Malformed
    if len(value) != 1:
        raise invalid(
            "Supplied AttributeValue has more than one datatypes set, must contain exactly one of the supported datatypes"
        )
    ((kind, content),) = value.items()
    if kind == "S":
        return {"S": _text(content)}
    if kind == "N":
        return {"N": number(content)}
    if kind == "B":
        return {"B": _binary(content)}
    if kind in ("BOOL", "NULL"):
        if type(content) is not bool:
            raise Malformed
        if kind == "NULL" and not content:
            raise invalid(
                "One or more parameter values were invalid: Null attribute value types must have the value of true"
            )
        return {kind: content}
    if kind in ("L", "M"):
        if depth >= DEEPEST - 1:
            raise invalid(
                "Nesting Levels have exceeded supported limits: Attributes in the item have nested levels beyond supported limit"
            )
        if kind == "L":
            if not isinstance(content, (list, tuple)):
                raise Malformed
            return {"L": [normal(one, depth + 1) for one in content]}
        if not isinstance(content, dict):
            raise Malformed
        return {"M": {name: normal(one, depth + 1) for name, one in content.items()}}
    if kind in SETS:
        return {kind: _members(kind, content)}
    raise Malformed


def _text(content: Any) -> str:
    if not isinstance(content, str):
        raise Malformed
    try:
        content.encode()
    except UnicodeEncodeError:
        # In JSON the two halves of a surrogate pair are one character; one half is invalid.
        try:
            return content.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise AwsError(
                "SerializationException", "the text holds half of a surrogate pair"
            ) from None
    return content


def _binary(content: Any) -> bytes:
    if isinstance(content, str):
        return content.encode()
    if not isinstance(content, (bytes, bytearray, memoryview)):
        raise Malformed
    return bytes(content)


def _members(kind: str, content: Any) -> list[Any]:
    if not isinstance(content, (list, tuple, set, frozenset)):
        raise Malformed
    if not content:
        raise invalid("One or more parameter values were invalid: An string set  may not be empty")
    one = {"SS": _text, "NS": number, "BS": _binary}[kind]
    members = [one(member) for member in content]
    if len(set(members)) != len(members):
        raise invalid(
            f"One or more parameter values were invalid: Input collection {content} contains duplicates."
        )
    return sorted(members, key=Decimal if kind == "NS" else None)


def number(content: Any) -> str:
    """The number as DynamoDB writes it: without insignificant zeros, and without an exponent if
    possible."""
    if not isinstance(content, str):
        raise Malformed
    if (
        content.isascii()
        and content.isdigit()
        and len(content) <= 38
        and (content[0] != "0" or content == "0")
    ):
        return content
    try:
        exact = _DIGITS.create_decimal(content)
    except Inexact:
        raise invalid("Attempting to store more than 38 significant digits in a Number") from None
    except DecimalException:
        exact = Decimal("NaN")
    if not exact.is_finite():
        raise invalid(f"The parameter cannot be converted to a numeric value: {content}")
    if not exact:
        return "0"
    if exact.adjusted() > 125:
        raise invalid(
            "Number overflow. Attempting to store a number with magnitude larger than supported range"
        )
    if exact.adjusted() < -130:
        raise invalid(
            "Number underflow. Attempting to store a number with magnitude smaller than supported range"
        )
    return f"{exact.normalize(_DIGITS):f}"


def size(image: Image) -> int:
    """The bytes that DynamoDB counts for a row."""
    return sum(len(name.encode()) + size_of(value) for name, value in image.items())


def size_of(value: Value) -> int:
    ((kind, content),) = value.items()
    if kind == "S":
        return len(content) if content.isascii() else len(content.encode())
    if kind == "B":
        return len(content)
    if kind == "N":
        return _number_size(content)
    if kind in ("BOOL", "NULL"):
        return 1
    if kind == "L":
        return 3 + sum(1 + size_of(one) for one in content)
    if kind == "M":
        return 3 + sum(1 + len(name.encode()) + size_of(one) for name, one in content.items())
    return sum(size_of({SETS[kind]: member}) for member in content)


def _number_size(content: str) -> int:
    digits = content.lstrip("-").replace(".", "").strip("0")
    return (len(digits) + 1) // 2 + 1 + content.startswith("-")


def sort_key(value: Value) -> Any:
    """The sort key of values of one type."""
    ((kind, content),) = value.items()
    return Decimal(content) if kind == "N" else content


def compare(operator: str, left: Value | None, right: Value | None) -> bool:
    """A comparison in a condition. Values of different types are neither equal nor in any order."""
    if operator == "<>":
        return left != right
    if left is None or right is None:
        return False
    if operator == "=":
        return left == right
    kind = next(iter(left))
    if kind != next(iter(right)) or kind not in ("S", "N", "B"):
        return False
    one, other = sort_key(left), sort_key(right)
    if operator == "<":
        return bool(one < other)
    if operator == "<=":
        return bool(one <= other)
    if operator == ">":
        return bool(one > other)
    return bool(one >= other)
