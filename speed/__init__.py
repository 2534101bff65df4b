"""Optimisations that can be disabled with `SPEED=0`.

They are separate from the code that they speed up. The table shows the effect of each
part on a whole turn: a message is sent, and its reply of five words is streamed. It
lists the CPU time of web process and worker together, and the median time to the first
words. The values are medians of three runs of 100 turns, measured with SQLite and
Django 5.2 on two idle cores.

    all on                               21.0 ms a turn    first words after 19.2 ms
    without `prepared`                   46.5 ms                             36.3 ms
    without `commits`                    26.9 ms                             26.9 ms
    without `threads`                    28.5 ms                             28.0 ms
    all off                              58.6 ms                             48.0 ms

`prepared` compiles statements once and creates rows quickly. `commits` does not wait
for the disk if that loses nothing. `threads` handles a request in one persistent
thread. `stacks` and `counts` are only for long texts and have their own measurements.
"""
