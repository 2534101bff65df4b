"""Signed ledger checkpoints, created automatically and also kept outside the database.

`signing` creates and signs checkpoints, `keys` manages the signing key. `external_copy` is the file
in the data folder and `log_file` the operator's list. `upkeep` schedules them, `checks` verifies
them, `timestamps` stores timestamps, `files` builds the downloads for outsiders.
"""
