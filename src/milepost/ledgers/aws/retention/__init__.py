"""Retention on AWS: ended rows get a time to live, and leave once all their lines are delivered."""
