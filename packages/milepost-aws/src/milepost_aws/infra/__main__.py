from __future__ import annotations

import sys

from milepost_aws.infra.app import main

sys.exit(main())
