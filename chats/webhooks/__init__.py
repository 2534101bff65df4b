"""Webhooks: `managing` creates and changes them, `delivering` sends the rows of `record.outbox`.

`stamping` requests timestamps for the ledger's checkpoints from an external authority.

Webhooks follow the Standard Webhooks specification (standardwebhooks.com). Libraries in most
languages verify its signatures.
"""
