"""Commands for a first start: init, demo, completion."""
