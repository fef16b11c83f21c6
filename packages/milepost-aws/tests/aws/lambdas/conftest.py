"""Fixtures for tests of the Lambda functions."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _as_in_lambda(account: str, lambda_log: None) -> None:
    """Every test has an AWS account of its own, and the log of a function."""
