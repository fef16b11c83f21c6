"""Health: one list of checks, shown by `doctor`, `/readyz` and the overview."""
