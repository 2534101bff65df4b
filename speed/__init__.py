"""Optimisations that can be disabled (`SPEED=0`), separate from the code that they speed up.

The effect of each part on a whole turn: a message is sent, and its reply of five words is streamed.
The CPU time of web process and worker together, and the median time to the first words. Measured
with SQLite, on two idle cores; medians of three runs of 100 turns. Written for Django 5.2.

    all on                               21.0 ms a turn    first words after 19.2 ms
    without `prepared`                   46.5 ms                             36.3 ms
    without `commits`                    26.9 ms                             26.9 ms
    without `threads`                    28.5 ms                             28.0 ms
    all off                              58.6 ms                             48.0 ms

`prepared` compiles statements once and creates rows quickly. `commits` does not wait for the disk
if that loses nothing. `threads` handles a request in one persistent thread. `stacks` and `counts`
are only for long texts and have their own measurements.
"""
