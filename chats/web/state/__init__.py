"""The chat state page."""
