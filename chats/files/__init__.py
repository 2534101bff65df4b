"""Uploaded files: upload, storage, type detection, text extraction, deletion."""
