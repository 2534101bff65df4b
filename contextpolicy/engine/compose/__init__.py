"""Composes prompts: pieces, layouts, trimming, partition and cache breakpoints."""
