"""Signing in and out, and the person's own page."""
