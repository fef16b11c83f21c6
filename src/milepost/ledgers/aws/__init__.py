"""The ledger on AWS: rows in DynamoDB, what is due in SQS queues, events through SNS."""
