"""boto3 clients whose calls the AWS model answers in this process: the same methods, errors, events
and checks."""

from __future__ import annotations

import time
from collections.abc import Callable
from email.utils import formatdate
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from milepost_aws.aws_model.errors import AwsError, Malformed

Answer = Callable[[str, str, dict[str, Any]], dict[str, Any]]
"""Answers a call of a service: the operation, as boto3 spells the method, and its parameters."""


def make_client(
    service: str,
    region: str,
    url: str,
    answer: Answer,
    config: Any = None,
    clock: Callable[[], float] = time.time,
) -> Any:
    """A boto3 client of the service. It sends nothing, retries nothing, and needs no credentials.
    Answers are dated by `clock`, in seconds."""
    from botocore.client import ClientMeta
    from botocore.config import Config
    from botocore.hooks import HierarchicalEmitter

    template, cls, _ = _template(service)
    client = cls.__new__(cls)
    meta = template.meta
    config = (
        Config(region_name=region).merge(config)
        if config is not None
        else Config(region_name=region)
    )
    client.meta = ClientMeta(
        HierarchicalEmitter(),
        config,
        url,
        meta.service_model,
        meta.method_to_api_mapping,
        meta.partition,
    )
    client._cache = {}
    client._exceptions = None
    client._exceptions_factory = template._exceptions_factory
    client._client_config = client.meta.config
    client._answer = answer
    client._clock = clock
    return client


class _Calls:
    """Answers calls instead of sending requests; mixed into the class of a boto3 client."""

    meta: Any
    exceptions: Any
    _answer: Answer
    _clock: Callable[[], float]

    def _make_api_call(self, operation: str, params: dict[str, Any]) -> dict[str, Any]:
        model = self.meta.service_model
        service, events = model.service_name, self.meta.events
        name = f"{model.service_id.hyphenize()}.{operation}"
        operation_model = _operation(service, operation)
        options = {"model": operation_model, "context": {}}
        for replaced in events.emit(f"provide-client-params.{name}", params=params, **options):
            params = params if replaced[1] is None else replaced[1]
        events.emit(f"before-parameter-build.{name}", params=params, **options)
        method, members, required = _shape(service, operation)
        if not members.issuperset(params) or not required.issubset(params):
            self._refuse(operation_model, params)
        _, answered = events.emit_until_response(
            f"before-call.{name}", params={"body": params}, request_signer=None, **options
        )
        if answered is None:
            events.emit(
                f"before-send.{name}",
                request=SimpleNamespace(url=self.meta.endpoint_url, body=params),
            )
            try:
                parsed = self._answer(service, method, params)
                status = 200
                parsed["ResponseMetadata"] = {
                    "HTTPStatusCode": 200,
                    "RetryAttempts": 0,
                    "RequestId": "model",
                }
            except AwsError as error:
                parsed, status = error.answer, error.status
            except (Malformed, KeyError, TypeError, AttributeError):
                self._refuse(operation_model, params)
                raise
            metadata = parsed.setdefault("ResponseMetadata", {"HTTPStatusCode": status})
            metadata["HTTPHeaders"] = {"date": formatdate(self._clock(), usegmt=True)}
            http = SimpleNamespace(status_code=status)
        else:
            http, parsed = answered
        events.emit(f"after-call.{name}", http_response=http, parsed=parsed, **options)
        if http.status_code >= 300:
            raise self.exceptions.from_code(parsed.get("Error", {}).get("Code"))(parsed, operation)
        return dict(parsed)

    @staticmethod
    def _refuse(operation_model: Any, params: dict[str, Any]) -> None:
        """Let boto3's own validator report invalid parameters."""
        from botocore.exceptions import ParamValidationError
        from botocore.validate import ParamValidator

        report = ParamValidator().validate(params, operation_model.input_shape)
        if report.has_errors():
            raise ParamValidationError(report=report.generate_report())

    def close(self) -> None:
        """There are no connections."""


@lru_cache
def _template(service: str) -> tuple[Any, Any, dict[str, str]]:
    """boto3's own client of the service, made once, and our class derived from it."""
    from botocore.session import get_session

    session = get_session()
    template = session.create_client(
        service,
        region_name="eu-central-1",
        aws_access_key_id="model",
        aws_secret_access_key="model",
    )
    cls = type(template)
    methods = {
        operation: method for method, operation in template.meta.method_to_api_mapping.items()
    }
    return template, type(f"Model{cls.__name__}", (_Calls, cls), {}), methods


@lru_cache(maxsize=1024)
def _operation(service: str, operation: str) -> Any:
    return _template(service)[0].meta.service_model.operation_model(operation)


@lru_cache(maxsize=1024)
def _shape(service: str, operation: str) -> tuple[str, frozenset[str], frozenset[str]]:
    """The method's name, and its optional and required parameters."""
    shape = _operation(service, operation).input_shape
    members = frozenset(shape.members) if shape else frozenset()
    required = frozenset(shape.required_members) if shape else frozenset()
    return _template(service)[2][operation], members, required
