"""Answers programs that speak to OpenAI's addresses: /v1, one base address away.

A request is read (`body`, `conversation`), its place among the owner's chats is found
(`recognition`), what is new in it is stored with a turn (`placing`), and the turn runs as any
other: policy, receipts, ledger, summaries. The reply goes back as it is written (`relay`, `wire`).
Nothing here calls a model.
"""
