"""The DSpace Submission Service: its messages, its results, and a stand-in."""
