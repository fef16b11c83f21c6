"""Work: claim items, run handlers, settle outcomes; for processes, Lambda functions and remote
workers."""
