"""The life of a turn: accept, claim, call the model, store the reply, recover."""
