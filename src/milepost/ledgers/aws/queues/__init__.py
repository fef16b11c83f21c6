"""SQS queues: messages in batches, and long polling of idle queues."""
