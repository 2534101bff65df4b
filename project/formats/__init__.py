"""Date formats for the pages."""
