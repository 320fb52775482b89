"""Experiments in one process: comparisons, the audit, measurements. Nothing that a deployment runs."""
