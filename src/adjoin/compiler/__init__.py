"""The kernel compiler: it knows nothing of robots."""
