"""Analysis of texts: facts, languages, scripts, claims, names, JSON Schema."""
