"""What a run leaves on disk: checkpoints, metrics, status and the best policy; rank 0's alone.

May import: host, config, operators, envs.
Begin with: run.py, then files.py; nothing else imports h5py.

run.py is the run that writes, reading.py what others read of it. Files are published whole, never
appended in place (files.py), so that a reader who has one open never disturbs the run. run.lock is
held as long as the run lives (lock.py).
"""

from esac_mpi.host.errors import Away, Refused, Unreadable, Unsaved
from esac_mpi.record.checkpoints import Checkpoint
from esac_mpi.record.directory_check import settings_of
from esac_mpi.record.files import digest, read
from esac_mpi.record.reading import Columns, RunFiles
from esac_mpi.record.run import Run
from esac_mpi.record.sources import compare_start, source
from esac_mpi.record.status import read_status

__all__ = [
    "Away", "Checkpoint", "Columns", "Refused", "Run", "RunFiles", "Unreadable", "Unsaved",
    "compare_start", "digest", "read", "read_status", "settings_of", "source",
]  # fmt: skip
