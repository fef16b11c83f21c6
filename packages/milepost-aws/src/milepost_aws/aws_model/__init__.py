"""An in-process model of AWS for tests: boto3 clients that need no network, and faults at their
calls.

model = AwsModel()
requests = Requests("eu-central-1", session=model)      # the AWS ledger's own, or
with model.served() as endpoint:                        # anything that uses boto3
    boto3.client("sqs", endpoint_url=endpoint)

model.table("prod-orders").indexes["due"].hold() # queries of the index see no write from now on
model.table("prod-orders").stream.split() # its shards end, and new ones follow faults = Faults()
faults.attach(model) faults.plan("UpdateItem", "timeout_after") # executed, but not answered
"""

from __future__ import annotations

from milepost_aws.aws_model.faults import AwsCall, Faults, kinds
from milepost_aws.aws_model.model import AwsModel

__all__ = ["AwsCall", "AwsModel", "Faults", "kinds"]
