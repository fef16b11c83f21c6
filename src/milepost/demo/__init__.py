"""The demo: its two routes, and two made-up days of history."""
