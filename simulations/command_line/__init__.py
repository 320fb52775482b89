"""``python -m simulations``."""
