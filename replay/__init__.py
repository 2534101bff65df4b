"""Plays recorded conversations through the pipeline and through the engine."""
