"""Cryptographic primitives: wrappers of `cryptography`, and Shamir's secret sharing."""
