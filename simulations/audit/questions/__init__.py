"""Questions to the library whose answers are known: what it computes from known inputs, and what it refuses."""
