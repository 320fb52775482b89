"""Thin wrappers over `cryptography`, and secret sharing."""
