"""Errors of AWS and of folders that people put right in the configuration. They say nothing about a DOI, and count no try of one."""

from __future__ import annotations

import errno

LONGEST = 300
_LOG_IN = "put valid AWS credentials into the environment of every process of Milepost"
_ALLOW = "allow it in the policy of the role or user that Milepost's processes have"
_NAME = "correct its name in milepost.toml, or the region and account in the environment, or create it"
_CLOCK = "correct the clock of this machine"
_RIGHTS = "give the user of Milepost's processes the right to read and write there"

CURES: dict[str | int | None, str] = {
    **dict.fromkeys(("AccessDenied", "AccessDeniedException", "AllAccessDisabled", "AuthorizationError"), _ALLOW),
    **dict.fromkeys(("KMS.AccessDeniedException", "KMSAccessDenied", "OptInRequired"), _ALLOW),
    **dict.fromkeys(("InvalidClientTokenId", "InvalidAccessKeyId", "UnrecognizedClientException"), _LOG_IN),
    **dict.fromkeys(("SignatureDoesNotMatch", "InvalidSignatureException"), _LOG_IN),
    **dict.fromkeys(("IncompleteSignature", "IncompleteSignatureException"), _LOG_IN),
    **dict.fromkeys(("ExpiredToken", "ExpiredTokenException", "InvalidToken"), _LOG_IN),
    **dict.fromkeys(("MissingAuthenticationToken", "MissingAuthenticationTokenException"), _LOG_IN),
    **dict.fromkeys(("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "ProfileNotFound"), _LOG_IN),
    **dict.fromkeys(("TokenRetrievalError", "SSOTokenLoadError", "UnauthorizedSSOTokenError"), _LOG_IN),
    **dict.fromkeys(("AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist", "InvalidAddress"), _NAME),
    **dict.fromkeys(("NoSuchBucket", "InvalidBucketName", "PermanentRedirect", "AuthorizationHeaderMalformed"), _NAME),
    **dict.fromkeys(("RequestTimeTooSkewed", "RequestExpired"), _CLOCK),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR), _RIGHTS),
}
"""The cure, by the error code of AWS, the name of boto3's own error, or the error number of the operating system. The codes of the
ledger on AWS are among them; a test compares the two."""


def operators_fault(error: BaseException) -> str | None:
    """The error and its cure, where people have to correct the configuration; None for any other error. The errors of a blob
    store have that of AWS as their cause."""
    cause = error.__cause__ or error
    answer = getattr(cause, "response", None)
    code = answer.get("Error", {}).get("Code") if isinstance(answer, dict) else type(cause).__name__
    cure = CURES.get(code) or CURES.get(getattr(cause, "errno", None))
    return None if cure is None else f"{reason_of(cause)}; {cure}"


def reason_of(error: BaseException) -> str:
    """The error in one line. Where AWS refuses a signature, further lines would hold headers of the request."""
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(said).splitlines()[0][:LONGEST]
