"""Authentication: keys and sessions, origins, rate limits, and the author of an act."""
