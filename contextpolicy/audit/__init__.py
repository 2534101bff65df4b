"""The audit log for auditors: a search line, sentences, and exports that can be verified."""
