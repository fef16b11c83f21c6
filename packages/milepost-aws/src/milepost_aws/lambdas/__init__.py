"""AWS Lambda functions: each module is one function, `handler(event, context)`, a thin shell around
engine and ledger."""
