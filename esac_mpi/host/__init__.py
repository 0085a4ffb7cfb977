"""The machine and the process: log, stop, watchdog, batch system, memory, cores, threads, streams.

May import: nothing else of the package.
Begin with: log.py and stop.py; errors.py has the exit codes.
"""
