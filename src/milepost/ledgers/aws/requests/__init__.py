"""Requests to AWS: the only place that calls boto3, with its errors and deadlines."""
