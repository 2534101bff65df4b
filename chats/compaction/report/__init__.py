"""Reports on compaction: the status of a request, and the reasons why none was made."""
