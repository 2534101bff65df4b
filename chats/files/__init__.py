"""Files that people attach: upload, storage, detection of the kind, deletion."""
