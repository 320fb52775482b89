"""Learners and privacy modes put together, for who deploys them."""
