"""Text for people, made from values of the rules."""
