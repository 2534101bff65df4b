"""Pages about compactions: the list, one compaction, its originals and requests."""
