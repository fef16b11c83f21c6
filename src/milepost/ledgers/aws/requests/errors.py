"""Translation of AWS errors: temporary, failed condition, missing, forbidden; with advice on what to do."""

from __future__ import annotations

from typing import Any

from milepost.core.errors import LedgerError, LedgerMissing, LedgerReadOnly

Image = dict[str, dict[str, Any]]
"""A row in DynamoDB's form: attribute values by name, such as {"doi": {"S": "10.1/x"}}."""

TEMPORARY = {
    *("Throttling", "ThrottlingException", "ThrottledException", "Throttled", "RequestThrottled", "RequestThrottledException"),
    *("ProvisionedThroughputExceededException", "ProvisionedThroughputExceeded", "ThrottlingError", "RequestLimitExceeded"),
    *("TooManyRequestsException", "LimitExceededException", "BandwidthLimitExceeded", "SlowDown", "PriorRequestNotComplete"),
    *("OverLimit", "AWS.SimpleQueueService.OverLimit", "KmsThrottled", "KMSThrottling", "KMSThrottlingException"),
    *("InternalServerError", "InternalError", "InternalFailure", "ServiceUnavailable", "RequestTimeout", "RequestTimeoutException"),
    *("TransactionConflict", "TransactionConflictException", "TransactionInProgressException", "ReplicatedWriteConflictException"),
}
"""Temporary error codes: the same request may succeed a moment later."""
_MISSING = {
    *("ResourceNotFoundException", "TableNotFoundException", "NotFound", "NotFoundException"),
    *("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue"),
}
_DENIED = {"AccessDenied", "AccessDeniedException", "AuthorizationError", "KMS.AccessDeniedException", "KMSAccessDenied"}
_BAD_CREDENTIALS = {
    *("UnrecognizedClientException", "InvalidClientTokenId", "InvalidSignatureException", "SignatureDoesNotMatch"),
    *("ExpiredToken", "ExpiredTokenException", "MissingAuthenticationToken", "MissingAuthenticationTokenException"),
    *("IncompleteSignature", "IncompleteSignatureException", "InvalidAccessKeyId"),
}

_ONE_ROW = ("update_item", "put_item")
_WRONG_KEY = "key element does not match the schema"
"""The table has another key than expected, so no row can be written."""
_NO_INDEX = "The table does not have the specified index"


class AwsRefused(LedgerError):
    """AWS refused a request permanently; `code` is its error code."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class RowRefused(AwsRefused):
    """AWS refused to write one row permanently: it is too large or has an invalid value. Other rows can be written. `refused_rows` says
    what happens then."""


class ConditionFailed(LedgerError):
    """The condition of a write failed. `image` is the present row, if requested and existing. After a lost answer the row may be the
    result of our own write: the caller must look for its token in the row."""

    def __init__(self, image: Image | None, message: str = "the row is not as the write expected") -> None:
        super().__init__(message)
        self.image = image


class TransactionRefused(LedgerError):
    """A transaction was refused because of its conditions. `reasons` has one entry per action, in order: its Code ("None" if there
    was no problem) and, if requested, the row as Item."""

    def __init__(self, reasons: list[dict[str, Any]], message: str = "a row is not as the transaction expected") -> None:
        super().__init__(message)
        self.reasons = reasons


def temporary_reason(error: Exception, where: str) -> str:
    """Why a request failed, if the error is temporary; otherwise raises the translated error."""
    from botocore import exceptions as known
    from botocore.parsers import ResponseParserError

    if isinstance(error, known.ClientError):
        return _translated(error, error.response, where)
    if isinstance(error, (known.HTTPClientError, known.ConnectionError, known.IncompleteReadError, ResponseParserError)):
        return f"no usable answer ({error})"
    if isinstance(error, (known.NoRegionError, known.InvalidRegionError)):
        raise LedgerError(f"{where}: {error}; name the region in the ledger's address: dynamodb://REGION/PREFIX") from error
    no_credentials = (known.NoCredentialsError, known.PartialCredentialsError, known.CredentialRetrievalError, known.ProfileNotFound)
    if isinstance(error, (*no_credentials, known.SSOError, known.TokenRetrievalError)):
        raise _bad_credentials(where, str(error)) from error
    if isinstance(error, known.BotoCoreError):
        one_row = isinstance(error, known.ParamValidationError) and any(operation in where for operation in _ONE_ROW)
        raise (RowRefused if one_row else AwsRefused)(f"{where}: {error}", type(error).__name__) from error
    raise error


def _translated(error: Exception, response: dict[str, Any], where: str) -> str:
    code, message = str(response.get("Error", {}).get("Code", "")), response.get("Error", {}).get("Message", "")
    why = f"{code}: {message}" if message else code
    if code == "ConditionalCheckFailedException":
        raise ConditionFailed(response.get("Item"), f"{where}: the row is not in the state that the write requires") from error
    if code == "TransactionCanceledException":
        reasons = response.get("CancellationReasons", [])
        codes = {reason.get("Code", "None") for reason in reasons} - {"None"}
        if codes and codes <= TEMPORARY:
            return why
        if codes and codes - TEMPORARY <= {"ConditionalCheckFailed"}:
            raise TransactionRefused(reasons, f"{where}: {message}") from error
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in TEMPORARY or status == 429 or status >= 500:
        return why
    if code in _MISSING:
        raise LedgerMissing(
            f"{where}: not found ({why}); check the region and the prefix in dynamodb://REGION/PREFIX, the account, and whether"
            " its tables and queues were created"
        ) from error
    if code == "ValidationException" and message.startswith(_NO_INDEX):
        raise LedgerError(
            f"{where}: the table has no index {message.removeprefix(_NO_INDEX).strip(': ')!r}, which finds due items; add it as the"
            " stack in infra/ does: a global secondary index of dueShard and dueAt, both text, with the keys only (KEYS_ONLY)"
        ) from error
    if code in _DENIED:
        raise LedgerReadOnly(f"{where}: this role has no permission ({why}); add the action to its policy") from error
    if code in _BAD_CREDENTIALS:
        raise _bad_credentials(where, why) from error
    if code == "ValidationException" and any(operation in where for operation in _ONE_ROW) and _WRONG_KEY not in message:
        raise RowRefused(f"{where}: {why}", code) from error
    raise AwsRefused(f"{where}: {why}", code) from error


def _bad_credentials(where: str, why: str) -> LedgerError:
    return LedgerError(
        f"{where}: AWS does not accept the credentials ({why}); log in again, or set AWS_PROFILE or AWS_ACCESS_KEY_ID"
        " and AWS_SECRET_ACCESS_KEY"
    )
