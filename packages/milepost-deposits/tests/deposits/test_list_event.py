"""Lists of DOIs on AWS by event: an object under lists/deposits/ in the deployment's bucket is
taken in as from an inbox."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from tests.aws.lambdas.deployment import HEAD, Deployment, deployments
from tests.aws.lambdas.event_source_mapping import Context

from milepost.engine.views.items import lists as records
from milepost_aws.lambdas import lists

SOURCE = (
    HEAD
    + """
from milepost_deposits.route import deposits_route
from milepost_deposits.settings import DepositsSettings, SubmitSettings

submit = SubmitSettings(dspace="https://dspace.example/server", collection="123456789/2")
deposits = deposits_route(
    DepositsSettings(content="https://publisher.example/{doi}", mailto="library@example.org", clean="never", submit=submit)
)
"""
)


@pytest.fixture
def deployment(endpoint: str, prefix: str, tmp_path: Path) -> Iterator[Deployment]:
    with deployments(endpoint, prefix, tmp_path) as deploy:
        yield deploy(SOURCE)


def test_a_list_of_dois_is_taken_in_by_event(
    deployment: Deployment, endpoint: str, prefix: str
) -> None:
    s3 = boto3.client("s3", endpoint_url=endpoint)
    s3.create_bucket(
        Bucket=f"{prefix}-lists", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"}
    )
    key = "lists/deposits/full/march.CSV"
    s3.put_object(
        Bucket=f"{prefix}-lists",
        Key=key,
        Body=b"\xef\xbb\xbfTitle;Article DOI\r\nA;https://doi.org/10.1/X\r\nB;doi:10.1/x\r\nC;none\r\n",
    )
    lists.handler(
        {
            "Records": [
                {
                    "s3": {
                        "bucket": {"name": f"{prefix}-lists"},
                        "object": {"key": key, "sequencer": "1"},
                    }
                }
            ]
        },
        Context(),
    )
    (record,) = records(deployment.opened.ctx, "deposits")
    assert record.full
    assert record.counts | {"new": 1, "repeated": 1, "malformed": 1} == record.counts
    assert deployment.row("10.1/x").stage == "metadata"
    s3.close()
