"""The stack: all resources of one deployment, part by part."""

from __future__ import annotations

import aws_cdk as cdk
from constructs import Construct

from milepost_aws.infra.alarms import add_alarms
from milepost_aws.infra.bucket import add_bucket, bucket_name, tell_of_lists
from milepost_aws.infra.confirmers import add_confirmers
from milepost_aws.infra.dashboard import add_dashboard
from milepost_aws.infra.endpoints import add_endpoints
from milepost_aws.infra.functions import add_functions
from milepost_aws.infra.key import add_key
from milepost_aws.infra.parts import Parts
from milepost_aws.infra.people import add_people
from milepost_aws.infra.queues import add_queues
from milepost_aws.infra.schedules import add_schedules
from milepost_aws.infra.settings import Settings
from milepost_aws.infra.tables import add_tables
from milepost_aws.infra.topics import add_topics
from milepost_aws.ledger.names import ResourceNames


class MilepostStack(cdk.Stack):
    """Ids are made of names, never of positions: another stage or route leaves everything else
    unchanged."""

    def __init__(self, scope: Construct, settings: Settings) -> None:
        super().__init__(
            scope,
            f"{settings.prefix}-milepost",
            description=f"Milepost {settings.prefix}: {', '.join(r.name for r in settings.routes)}",
        )
        self.parts = parts = Parts(
            self, settings, ResourceNames(settings.prefix), bucket_name(self, settings.prefix)
        )
        add_key(parts)
        add_tables(parts)
        add_queues(parts)
        add_topics(parts)
        add_bucket(parts)
        add_functions(parts)
        tell_of_lists(parts)
        add_schedules(parts)
        add_endpoints(parts)
        add_confirmers(parts)
        add_people(parts)
        add_alarms(parts)
        add_dashboard(parts)
        self._say(parts)

    def _say(self, parts: Parts) -> None:
        """Outputs for people and other stacks."""
        cdk.CfnOutput(self, "Ledger", value=parts.ledger_url, description="for MILEPOST_LEDGER")
        cdk.CfnOutput(self, "Blobs", value=parts.blobs_url, description="for MILEPOST_BLOBS")
        cdk.CfnOutput(
            self,
            "Lists",
            value=f"s3://{parts.bucket_name}/lists/ROUTE/",
            description="a list that is put here is submitted",
        )
        cdk.CfnOutput(self, "Events", value=parts.events.topic_arn, description="subscribe here")
