"""Requests to AWS: the only code that calls boto3, with its errors and deadlines, and SQS
queues."""
