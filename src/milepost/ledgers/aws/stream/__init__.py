"""DynamoDB Streams: shards, how far each has been read, and their records."""
