"""People's actions on summaries: request, correct, approve, undo."""
