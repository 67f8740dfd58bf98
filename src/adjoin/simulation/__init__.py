"""Time stepping: actuation, contact and integration as one traced step, rolled out in one launch."""
