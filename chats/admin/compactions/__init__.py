"""Admin pages of compactions, and the review of summaries."""
