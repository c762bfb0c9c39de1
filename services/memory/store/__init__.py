"""All SQL of the memory service."""
