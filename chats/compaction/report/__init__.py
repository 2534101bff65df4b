"""Reports on compaction for people: the status of a request, and the reasons why none was made."""
