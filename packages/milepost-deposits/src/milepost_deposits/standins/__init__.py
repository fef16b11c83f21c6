"""Stand-ins for Crossref and a publisher that speak real HTTP, for tests and demonstrations; they
can be set to misbehave."""
