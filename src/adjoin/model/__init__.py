"""Robot models: frozen, hashable by content, every physical number a named parameter."""
