"""Managed policies for processes outside Lambda, and for people. The stack attaches them to
nothing.

Each is two, to be attached together: one for the tables, one for queues, topic and bucket. IAM
takes 6,144 characters in one.
"""

from __future__ import annotations

from typing import Any

from aws_cdk import aws_iam as iam

from milepost_aws.infra import access
from milepost_aws.infra.parts import Parts

# Descriptions are plain ASCII for IAM.
POLICIES = {
    "process": (
        access.process,
        "Runs milepost up or milepost work outside Lambda: workers, relay, resender, the API and the page.",
    ),
    "operator": (
        access.operator,
        "For operators with the command line: looks at everything, acts on items, pauses, makes API keys.",
    ),
    "viewer": (
        access.viewer,
        "For people and programs that only look: neither writes anything nor reads API keys and sessions.",
    ),
}


def add_people(parts: Parts) -> None:
    for name, (statements, description) in POLICIES.items():
        tables: list[Any] = []
        others: list[Any] = []
        for statement in statements(parts):
            (tables if statement.actions[0].startswith("dynamodb:") else others).append(statement)
        for suffix, some in (("", tables), ("-messages", others)):
            iam.ManagedPolicy(
                parts.scope("people"),
                name + suffix,
                managed_policy_name=f"{parts.settings.prefix}-milepost-{name}{suffix}",
                description=f"{description} Attach {name} and {name}-messages together.",
                statements=some,
            )
