"""The route as an environment describes it, for where there is no file of one's own: POSTINGEST_QUEUES holds the queues' JSON, or a
file's name; POSTINGEST_DIALECT says "seed" (as without it) or "today"."""

from __future__ import annotations

import os

from milepost.applications.postingest.route import postingest

route = postingest(os.environ.get("POSTINGEST_QUEUES"), dialect=os.environ.get("POSTINGEST_DIALECT", "seed"))
