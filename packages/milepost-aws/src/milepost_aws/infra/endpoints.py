"""HTTP API of API Gateway for the applications' endpoints that submit items, such as POST /message;
its function answers them."""

from __future__ import annotations

import json
import re

import aws_cdk as cdk
from aws_cdk import RemovalPolicy
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_logs as logs

from milepost_aws.infra.functions import LOG_RETENTION
from milepost_aws.infra.parts import Parts

FUNCTION = "accept"
LOG_FIELDS = (
    "requestId",
    "ip",
    "requestTime",
    "httpMethod",
    "path",
    "status",
    "responseLength",
    "integrationErrorMessage",
)
_REST = re.compile(r"{(\w+):path}")


def add_endpoints(parts: Parts) -> None:
    """Nothing, if no application submits items over HTTP."""
    function = parts.functions.get(FUNCTION)
    if function is None:
        return
    scope = parts.scope("endpoints")
    name = f"{parts.settings.prefix}-{FUNCTION}"
    api = apigateway.HttpApi(scope, "api", api_name=name, create_default_stage=False)
    integration = integrations.HttpLambdaIntegration("call", function)
    for path in sorted({path for _, path in parts.settings.endpoints}):
        # All methods: the function refuses wrong ones in the error format of its endpoint, which
        # API Gateway does not know.
        api.add_routes(
            path=_REST.sub(r"{\1+}", path),
            methods=[apigateway.HttpMethod.ANY],
            integration=integration,
        )
    # Under this prefix AWS lets API Gateway write without a policy that grows with every stage.
    group = logs.LogGroup(
        scope,
        "log",
        log_group_name=f"/aws/vendedlogs/{name}",
        retention=LOG_RETENTION,
        removal_policy=RemovalPolicy.DESTROY,
        encryption_key=parts.key,
    )
    apigateway.CfnStage(
        scope,
        "stage",
        api_id=api.api_id,
        stage_name="$default",
        auto_deploy=True,
        access_log_settings=apigateway.CfnStage.AccessLogSettingsProperty(
            destination_arn=group.log_group_arn,
            format=json.dumps({field: f"$context.{field}" for field in LOG_FIELDS}),
        ),
    )
    parts.endpoints_api = api
    cdk.CfnOutput(
        parts.stack,
        "Endpoints",
        value=api.api_endpoint,
        description="submit items here, with an API key of Milepost",
    )
