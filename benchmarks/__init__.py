"""Speed and size of this library, measured beside floors and peers in the same run."""
