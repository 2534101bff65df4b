"""The record of what was said, and reading it: messages, history, receipts, access."""
