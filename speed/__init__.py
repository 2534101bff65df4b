"""Speed work that can be switched off (`SPEED=0`), apart from what it makes faster.

What each part saves of a whole turn: a message is sent, its reply of five words is streamed. The
processor's time of the web process and the worker together, and the median time to the first
words; SQLite, two cores that nothing else used, medians of three runs of 100 turns. Read against
Django 5.2.

    all on                               21.0 ms a turn    first words after 19.2 ms
    without `prepared`                   46.5 ms                             36.3 ms
    without `commits`                    26.9 ms                             26.9 ms
    without `threads`                    28.5 ms                             28.0 ms
    all off                              58.6 ms                             48.0 ms

`prepared` compiles statements once and makes rows quickly, `commits` does not wait for the disk
where nothing is lost by it, `threads` answers a request in one thread that lasts. `stacks` is for
long texts alone, with its own measurement.
"""
