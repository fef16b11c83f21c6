"""Milepost on AWS: the ledger, blobs in S3, a topic as a subscriber, mail through SES, Lambda
functions, and the CDK app."""
