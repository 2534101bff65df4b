"""Answers programs that speak to OpenAI's addresses: /v1, one base address away.

A request is read (`body`, `conversation`), its place among the owner's chats is found
(`recognition`), what is new in it is stored with a turn (`placing`), and the turn runs as any
other: policy, receipts, ledger, summaries. The reply goes back as it is written (`relay`, `wire`).
Models are called by workers; only for what has no chat, embeddings and requests of which nothing is
kept (`opting_out`), a provider is asked from here (`direct`).
"""
