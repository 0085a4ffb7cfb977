"""The program, run after run in one process.

A line of the input is a command line and an environment, a line of the output the exit code.

What the program prints goes to stderr.
"""

import json
import os
import sys
from unittest import mock

from esac_mpi import __main__

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
for line in sys.stdin:
    words, variables = json.loads(line)
    with mock.patch.dict(os.environ, variables):
        print(json.dumps(__main__.main(words)), file=answers, flush=True)
