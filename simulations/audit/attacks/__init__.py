"""Attacks, one idea a file; a further one is its file here and its line in ``simulations.audit.catalogue``."""
