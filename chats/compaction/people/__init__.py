"""Actions of people on summaries: request, correct, approve, undo."""
