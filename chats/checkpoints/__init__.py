"""Signed ledger checkpoints, created automatically and also kept outside the database.

`signing` creates and signs checkpoints, `keys` holds the signing key. `outside` is the file in the
data folder and `listed` the operator's list. `upkeep` schedules them, `checks` verifies them,
`stamps` holds timestamps, `files` builds the downloads for outsiders.
"""
