"""Checks policies: errors that prevent saving, warnings, and suggested fixes."""
