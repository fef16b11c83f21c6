"""DynamoDB tables: how rows, documents and counters are stored, and the conditional write."""
