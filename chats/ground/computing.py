"""The lock under which a process of background work computes and writes, one thread at a time.

Python runs one thread at a time anyway. Without the lock a thread that holds SQLite's only writer,
or rows that a reply needs, waits for the interpreter while another thread plans a summary, and
everybody waits behind it: first words came after 36 ms instead of 30 beside twenty chats that catch
up. Nobody holds the lock while they wait for a model.
"""

import threading

alone = threading.Lock()
