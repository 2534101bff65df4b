"""Statistics from the ledger: daily totals, and the balance of each compaction."""
