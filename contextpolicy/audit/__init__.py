"""The ledger for people who audit: one search line, sentences, and exports that can be verified."""
