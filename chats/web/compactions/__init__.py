"""The pages about summaries."""
