"""Command lines: arguments, errors, streams, signals and files, the same for every command."""
