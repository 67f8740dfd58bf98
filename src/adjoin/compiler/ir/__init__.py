"""The graph of scalar operations, control flow, and programs."""
