"""The rules of sessions and items, without any I/O."""
