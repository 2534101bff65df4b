"""OpenAI-compatible API below /v1.

A request is parsed (`body`, `conversation`) and matched to one of the owner's chats
(`recognition`). New messages are stored with a turn (`placing`), which runs like any other: policy,
receipts, ledger, summaries. The reply is streamed back (`relay`, `wire`). Workers call the models.
Only requests without a chat, embeddings and pass-through requests (`opting_out`), call a provider
from the web process (`direct`).
"""
