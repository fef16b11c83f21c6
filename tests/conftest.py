"""For all tests: under CI, Hypothesis tries the same examples every time; elsewhere it goes on looking for new ones."""

from __future__ import annotations

import os

from hypothesis import settings

# No deadline for a single example: on a busy machine it would say more about the machine than about the code.
settings.register_profile("ci", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "explore")
