"""Modes, learners and cohorts side by side, against the pooled model."""
