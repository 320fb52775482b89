"""Attacks on sums, each tried first where it must win."""
