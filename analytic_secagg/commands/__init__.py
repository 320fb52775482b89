"""Declarations of the commands: options and help, apart from what runs them, which takes longer to import."""
