"""Commands that prove: signing keys, daily heads, verify."""
