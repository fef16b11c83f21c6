"""Who may call: authentication, origins, rate limits, and the author of an act."""
