"""Stored messages, and the code that reads and writes them: history, receipts, access."""
