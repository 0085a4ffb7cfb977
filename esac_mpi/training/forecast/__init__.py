"""What a run will cost: measured pieces of its work, followed through its schedule.

generations makes what algorithms will ask for, of pieces that measured has; outlook follows it
through the ranks and adds up, advice does so for other settings and names what helps most. Nothing
here changes a run.
"""
