"""The doors for others: an API over HTTP, and a page for people. Thin: everything is done by the engine."""
