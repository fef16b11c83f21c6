"""DynamoDB tables: how rows, documents, counters and the journal are stored, and the conditional
write."""
