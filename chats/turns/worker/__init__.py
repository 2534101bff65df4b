"""The worker process: its event loop, database threads and heartbeats."""
