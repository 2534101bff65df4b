"""The embedded database as Django's `ENGINE`."""
