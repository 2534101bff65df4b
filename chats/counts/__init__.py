"""Counts what the ledger tells: sums of each day, and the balance of each compaction."""
