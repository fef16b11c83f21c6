"""The ledger on AWS: rows in DynamoDB, messages for due items in SQS, events through SNS."""
