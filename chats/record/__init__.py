"""Stored messages and their readers: history, receipts, access."""
