"""The demo: two routes, and two invented days of history."""
