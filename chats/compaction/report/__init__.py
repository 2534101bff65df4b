"""Reports on compaction: the status of a request, and why no summary was started."""
