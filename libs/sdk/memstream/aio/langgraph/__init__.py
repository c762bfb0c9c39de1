"""The source of what `memstream.langgraph` has in two kinds."""
