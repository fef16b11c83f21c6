"""Fixtures for tests of the Lambda functions."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _own_account(account: str) -> None:
    """Every test has an AWS account of its own."""
