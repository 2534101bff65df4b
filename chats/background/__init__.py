"""Jobs that follow a reply or the clock: the sweep, titles, preferences, warm-ups, hooks."""
