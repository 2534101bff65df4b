"""Renders Markdown as safe HTML. No other package turns text into HTML."""
