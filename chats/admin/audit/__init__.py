"""Admin pages of the audit log, of turns and of receipts."""
