"""What a run will cost, before it begins: measured pieces of its work go through the clock that every schedule goes through.

pieces.py has what was measured, work.py makes generations of it as the algorithm will ask for them, outlook.py follows those
through the ranks and adds up, advice.py does so for other settings and names what helps most. pace.py does with less: it tells
from the first generations of a start how the rest goes on. Nothing here measures, and nothing here changes a run.
"""
