"""The OpenAI-compatible API below /v1.

A request is parsed (`body`, `matching.conversation`) and matched to one of the owner's chats
(`matching.find_branch`). New messages are stored with a turn (`append_request`), which runs like
any other: policy, receipts, ledger, summaries. The reply is streamed back (`relay`, `wire`).
Workers call the models. Three kinds of requests call a provider from the web process
(`passthrough.provider_call`): those without a chat, embeddings, and pass-through requests
(`passthrough.rules`).
"""
