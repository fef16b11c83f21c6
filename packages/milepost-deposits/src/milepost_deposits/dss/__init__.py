"""The DSpace Submission Service: its messages and its results."""
