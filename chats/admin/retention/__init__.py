"""Admin pages of retention runs, legal holds and kept texts."""
