"""Date formats of the pages."""
