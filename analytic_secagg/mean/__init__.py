"""Secure means of anybody's models, round by round, over any engine: terms, both sides of a round, what a node logs."""
