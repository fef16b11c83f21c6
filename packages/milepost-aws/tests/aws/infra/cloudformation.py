"""Deployment of a template on a stand-in for CloudFormation."""

from __future__ import annotations

import io
import json
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests import standins
from tests.aws.infra.templates import Template

STACK = "test-milepost"
Client = Callable[[str], Any]


def zipped(folder: Path) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, path.relative_to(folder))
    return content.getvalue()


def deploy(template: Template, client: Client, account: str, url: str) -> None:
    """What `cdk bootstrap` and `cdk deploy` do: the code into a bucket, then the stack."""
    bucket = f"cdk-hnb659fds-assets-{account}-{standins.REGION}"
    client("s3").create_bucket(
        Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": standins.REGION}
    )
    client("ssm").put_parameter(Name="/cdk-bootstrap/hnb659fds/version", Value="30", Type="String")
    assets = json.loads((template.folder / f"{STACK}.assets.json").read_text())["files"]
    for asset in assets.values():
        path = template.folder / asset["source"]["path"]
        (place,) = asset["destinations"].values()
        body = zipped(path) if asset["source"]["packaging"] == "zip" else path.read_bytes()
        client("s3").put_object(Bucket=bucket, Key=place["objectKey"], Body=body)
    (key,) = (
        one["destinations"].popitem()[1]["objectKey"]
        for one in assets.values()
        if one["source"]["packaging"] == "file"
    )
    cloudformation = client("cloudformation")
    cloudformation.create_stack(
        StackName=STACK, TemplateURL=f"{url}/{bucket}/{key}", Capabilities=["CAPABILITY_NAMED_IAM"]
    )
    while (
        status := cloudformation.describe_stacks(StackName=STACK)["Stacks"][0]["StackStatus"]
    ).endswith("IN_PROGRESS"):
        time.sleep(0.02)
    events = cloudformation.describe_stack_events(StackName=STACK)["StackEvents"]
    assert status == "CREATE_COMPLETE", [
        event for event in events if "FAILED" in event["ResourceStatus"]
    ]
