"""The "Prompt receipt" page."""
