"""What a run will cost, before it begins: measured pieces of its work go through the clock that every schedule goes through.

comm/clock/costs.py has what was measured;
populations.py, learners.py, distributions.py, genetic.py and arrivals.py make generations
of it as their algorithms will ask for them, work.py follows these through the ranks, outlook.py adds up, advice.py does so for
other settings and names what helps most. operators.py measures what ranks do beside playing, for check/cost.py, which measures
the rest. pace.py does with less: it tells from the first generations of a start how the rest goes on. Nothing here changes a run.
"""
