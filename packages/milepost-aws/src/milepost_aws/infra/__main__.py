from __future__ import annotations

import sys

from infra.app import main

sys.exit(main())
