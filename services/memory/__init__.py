"""The memory service: stores of entries, their versions, search, and what the distiller adds to them."""
