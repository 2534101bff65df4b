"""Renders Markdown as safe HTML: the only place that makes HTML of words."""
