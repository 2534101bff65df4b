"""Webhooks: `managing` makes and changes them, `delivering` sends what `record.outbox` stored.

`stamping` asks an authority outside for timestamps of the ledger's checkpoints.

The form of webhooks is that of the Standard Webhooks specification (standardwebhooks.com), for
whose signatures libraries exist in most languages.
"""
