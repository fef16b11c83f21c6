"""DynamoDB Streams: shards, read positions and records."""
