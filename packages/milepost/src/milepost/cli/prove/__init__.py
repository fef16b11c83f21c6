"""Commands for evidence: signing keys, daily heads, verification."""
