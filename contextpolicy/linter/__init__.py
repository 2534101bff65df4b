"""Judges policies: what prevents saving, what works badly or may surprise, what would mend it."""
