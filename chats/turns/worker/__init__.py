"""The process that works on turns: its loop, its database threads, its heartbeats."""
