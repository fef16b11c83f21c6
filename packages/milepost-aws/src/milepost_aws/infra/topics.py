"""Topics: one for the items' events, and one for alarms."""

from __future__ import annotations

from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions

from milepost_aws.infra.parts import Parts


def add_topics(parts: Parts) -> None:
    """Neither is encrypted with a key of AWS's own: alarms could not publish, and other accounts
    could not subscribe. A customer-managed key allows both. Only TLS connections are allowed."""
    scope = parts.scope("topics")
    parts.events = sns.Topic(
        scope, "events", topic_name=parts.names.topic, enforce_ssl=True, master_key=parts.key
    )
    if parts.settings.alarm_topic is not None:
        parts.alarm_topic = sns.Topic.from_topic_arn(scope, "alarms", parts.settings.alarm_topic)
        return
    topic = sns.Topic(
        scope,
        "alarms",
        topic_name=f"{parts.settings.prefix}-alarms",
        enforce_ssl=True,
        master_key=parts.key,
    )
    # A topic with a policy of its own loses the default one for the account's alarms: without this
    # no alarm would ever arrive.
    topic.add_to_resource_policy(
        iam.PolicyStatement(
            sid="AlarmsOfThisAccount",
            principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
            actions=["sns:Publish"],
            resources=[topic.topic_arn],
            conditions={"StringEquals": {"aws:SourceAccount": parts.stack.account}},
        )
    )
    for address in parts.settings.alarm_emails:
        topic.add_subscription(subscriptions.EmailSubscription(address))
    parts.alarm_topic = topic
