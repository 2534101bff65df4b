"""Formats that replace Django's for English: 24 hours, with the time zone."""

DATETIME_FORMAT = "j M Y H:i:s e"
DATE_FORMAT = "j M Y"
