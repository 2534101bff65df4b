"""Chats with language models: messages, replies, summaries, pages, REST and `/v1`.

A message passes through these files in this order. Next to each file is the function
that is called first.

    web/chat_pages.py        message_create   takes a message from the page
    api/chats/messages.py    create           takes a message from a client
    turns/start.py           start_turn       stores message, turn and ledger event together
    tasks.py                 run_turn         Celery's task, which waits until the turn has ended
    turns/worker/runtime.py  run              opens the turn, then continues on the event loop
    turns/opening.py         open_turn        claims, composes and records in one database call
    turns/writes.py          claim_and_open   makes all writes of the turn, with their ledger events
    turns/lease.py           claim_turn       reserves the turn for this worker
    prompt/composition.py    compose_prompt   loads messages, policy and model for the engine
    contextpolicy/engine/compose/assembly.py  compose_context selects the content of the prompt
    turns/attempt.py         run_opened_turn  runs the steps of the turn
    turns/model_calls.py     call_model       calls the model, and retries failed calls
    turns/calling.py         listen           reads the reply of the model
    turns/tool_calls.py      run_tool_calls   runs the tools that the model calls
    turns/server_tools.py    run_ready_call   calls a tool of a server, if the model asks for one

At the end of each step, `turns/attempt.py` calls `turns/writes.py` again. The text of
the reply reaches pages and clients through `ground/live.py` and `streams/`. After the
turn, `compaction/maintain.py` prepares a summary in the background.
`docs/architecture.md` describes the packages, and `pyproject.toml` defines the layers
between them.
"""
