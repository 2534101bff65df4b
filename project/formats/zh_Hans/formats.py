"""Formats that replace Django's for Simplified Chinese: 24-hour clock, with the time zone."""

DATETIME_FORMAT = "Y年n月j日 H:i:s e"
DATE_FORMAT = "Y年n月j日"
# Thousands, as in the numbers that Python formats.
NUMBER_GROUPING = 3
THOUSAND_SEPARATOR = ","
