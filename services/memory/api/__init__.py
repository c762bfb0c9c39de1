"""The public surface of the memory service."""
