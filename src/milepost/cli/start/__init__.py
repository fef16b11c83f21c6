"""Commands to start with: init, demo, completion."""
