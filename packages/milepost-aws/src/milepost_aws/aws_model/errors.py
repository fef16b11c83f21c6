"""Errors of the AWS model: the code, message and status that AWS would answer with."""

from __future__ import annotations

from typing import Any


class AwsError(Exception):
    """An error answer. `more` has fields beside the error itself, such as Item or
    CancellationReasons."""

    def __init__(self, code: str, message: str, status: int = 400, **more: Any) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.status, self.more = code, message, status, more

    @property
    def answer(self) -> dict[str, Any]:
        """The answer as botocore would have parsed it."""
        metadata = {
            "HTTPStatusCode": self.status,
            "RetryAttempts": 0,
            "HTTPHeaders": {},
            "RequestId": "model",
        }
        return {
            "Error": {"Code": self.code, "Message": self.message},
            "ResponseMetadata": metadata,
            "message": self.message,
            **self.more,
        }


class Malformed(Exception):
    """Parameters that boto3 refuses before it sends anything; the client lets boto3's own validator
    report them."""


def invalid(message: str) -> AwsError:
    """DynamoDB's ValidationException."""
    return AwsError("ValidationException", message)


def missing_table(name: str) -> AwsError:
    return AwsError(
        "ResourceNotFoundException", f"Requested resource not found: Table: {name} not found"
    )
