"""What a run will cost: measured pieces of its work, followed through its schedule.

generations makes what algorithms will ask for, of pieces that measured has; outlook follows it
through the ranks, adds up, and does so for other settings. Nothing here changes a run.
"""
