"""The adapters, one file for each kind of model server, and the code they share."""
