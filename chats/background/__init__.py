"""Jobs that follow a reply or the clock: due jobs, titles, preferences, warm-ups, hooks."""
