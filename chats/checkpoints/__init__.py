"""Checkpoints of the ledger: signed, kept outside the database too, and made by themselves.

`signing` decides and signs, `keys` holds the signing key, `outside` the file beside the database,
`upkeep` says when one is due, `checks` verifies them, `files` is what outsiders get.
"""
