"""What a run will cost: measured pieces of its work, followed through its schedule.

populations, learners, distributions, genetic and arrivals make the generations that algorithms will
ask for; work follows them through the ranks, outlook adds up, advice does so for other settings and
names what helps most. phases and operators measure. Nothing here changes a run.
"""
