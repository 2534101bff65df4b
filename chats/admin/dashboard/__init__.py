"""The admin dashboard of usage and savings."""
