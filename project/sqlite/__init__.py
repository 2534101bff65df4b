"""The embedded database backend, for Django's `ENGINE`."""
