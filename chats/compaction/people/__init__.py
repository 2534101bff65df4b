"""User actions on summaries: request, correct, approve, undo."""
