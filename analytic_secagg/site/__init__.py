"""One site: what it believes, what it agrees to, what it keeps. No engine in it."""
