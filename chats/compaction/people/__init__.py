"""The actions of people on summaries: ask for one, correct, approve, undo."""
