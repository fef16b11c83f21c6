"""What the project is built with: not part of the package."""

from __future__ import annotations
