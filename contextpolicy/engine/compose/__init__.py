"""Composing a prompt: its pieces, layouts, trimming, partition and cache breakpoints."""
