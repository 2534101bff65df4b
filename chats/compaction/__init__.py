"""Compaction: plans, writes and publishes summaries of old messages, and moves the window."""
