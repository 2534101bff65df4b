"""Formats that replace Django's for English: 24-hour clock, with the time zone."""

DATETIME_FORMAT = "j M Y H:i:s e"
DATE_FORMAT = "j M Y"
