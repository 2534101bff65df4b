"""Endpoints of the audit log: events, checkpoints, counts, retention, holds and read texts."""
