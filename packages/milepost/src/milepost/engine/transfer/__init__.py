"""Transfer of routes to another ledger: copy, verify, and the lock that keeps a route open in one
ledger only."""
