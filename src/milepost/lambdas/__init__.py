"""Doors for AWS Lambda: each module is one function, `handler(event, context)`. Thin: what is done is the engine's and the ledger's."""
