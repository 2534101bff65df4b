"""Webhooks: `managing` makes and changes them, `delivering` sends what `record.outbox` stored.

The form is that of the Standard Webhooks specification (standardwebhooks.com), for whose
signatures libraries exist in most languages.
"""
