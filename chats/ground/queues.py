"""Queue names, separate from Celery so that the launcher need not import it.

People wait for tasks in the first queue, replies, and not for the others. `CELERY_TASK_ROUTES`
assigns tasks to queues.
"""

REPLIES = "replies"
SUMMARIES = "summaries"
UPKEEP = "upkeep"
BACKGROUND = (SUMMARIES, UPKEEP)
EVERY = (REPLIES, *BACKGROUND)
