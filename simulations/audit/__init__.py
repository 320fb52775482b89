"""What could be rebuilt from what clients send."""
