"""A Slurm of two virtual nodes here, for one test: private munge key, loopback only, no root.

`prepare.sh` unpacks the programs. Each daemon is a child of the test, and whatever the cluster has
started carries the path of its slurm.conf in its environment, so that `down` finds all of it.
"""

import ctypes
import getpass
import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from conftest import finish

CONF = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={work}/munge
CredType=cred/munge
PluginDir={work}/plugins:{plugins}
MailProg=/bin/true
StateSaveLocation={work}/state
SlurmdSpoolDir={work}/spool-%n
SlurmctldPidFile={work}/slurmctld.pid
SlurmdPidFile={work}/slurmd-%n.pid
TmpFS={work}/tmp-%n
SlurmdParameters=config_overrides
SlurmdTimeout=60
FirstJobId={first}
KillWait=60
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,sched_min_interval=0,bf_interval=1
ReturnToService=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
MpiDefault=pmi2
GresTypes=gpu
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} {node}
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} {node}
PartitionName=main Nodes=n1,n2 Default=YES PriorityTier=1
PartitionName=low Nodes=n1,n2 PriorityTier=1 GraceTime=300
PartitionName=urgent Nodes=n1,n2 PriorityTier=100 PreemptMode=OFF
"""
NODES = ("n1", "n2")
ROOT = Path(__file__).parents[2]


class Cluster:
    """Slurm's daemons and commands.

    software: what prepare.sh unpacked. work: an empty directory for configuration, state and logs.
    node: what each node has; a GPU is /dev/null. environment: what a process needs to be a client.
    """

    def __init__(self, software: Path, work: Path, node: str = "CPUs=4") -> None:
        self.work, self.sbin, self._node = work, software / "usr/sbin", node
        self.plugins = next(software.glob("usr/lib/*/slurm-wlm"))
        system = self.plugins.parent.name
        libraries = [self.plugins, software / "usr/lib" / system, software / "lib" / system]
        seen = [*map(str, libraries), *os.environ.get("LD_LIBRARY_PATH", "").split(":")]
        self.environment = {
            "SLURM_CONF": str(work / "slurm.conf"),
            "PATH": f"{software / 'usr/bin'}:{self.sbin}:{os.environ['PATH']}",
            "LD_LIBRARY_PATH": ":".join(seen).strip(":"),
        }
        self.daemons: dict[str, subprocess.Popen] = {}

    def up(self) -> None:
        """Start munge, the controller and the nodes; return when jobs can begin."""
        (self.work / "state").mkdir()
        (self.work / "key").write_bytes(os.urandom(128))
        (self.work / "key").chmod(0o600)
        for node in NODES:
            (self.work / f"tmp-{node}").mkdir()
            (self.work / f"spool-{node}").mkdir()
        self._let_pmix_be_found()
        (self.work / "gres.conf").write_text("Name=gpu File=/dev/null\n" * ("gpu" in self._node))
        (self.work / "slurm.conf").write_text(self._configuration())
        files = [f"--{kind}-file={self.work / 'munge'}.{kind}" for kind in ("pid", "seed", "log")]
        files += [f"--socket={self.work / 'munge'}", f"--key-file={self.work / 'key'}"]
        self._start("munged", "--foreground", "--force", *files)
        self._wait((self.work / "munge").exists)
        self._start("slurmctld", "-D", "-c")
        for node in NODES:
            self.start_node(node)
        nodes = "sinfo -h -p main -o %T".split()
        self._wait(lambda: self.run(*nodes, check=False).strip() == "idle")

    def _let_pmix_be_found(self) -> None:
        """Copy the plugin for PMIx to look in this cluster's directory, if that was unpacked."""
        here = self.work / "plugins"
        library = next(self.plugins.parent.glob("pmix2/lib/libpmix.so.2"), None)
        # where the plugin looks for libpmix.so
        there = f"/usr/lib/{self.plugins.parent.name}/pmix2/lib".encode()
        here.mkdir()
        if library is None or len(bytes(here)) > len(there):
            return
        (here / "libpmix.so").symlink_to(library)
        plugin = next(self.plugins.glob("mpi_pmix_v*.so"))
        moved = bytes(here).ljust(len(there), b"\0")
        (here / plugin.name).write_bytes(plugin.read_bytes().replace(there, moved))
        (here / "mpi_pmix.so").symlink_to(plugin.name)

    def down(self) -> None:
        """End everything that the cluster has started."""
        while self.processes():
            self.kill()
        for daemon in self.daemons.values():
            daemon.wait()

    def processes(self, *more: str) -> list[int]:
        """Return the processes of the cluster with `more` entries in their environments."""
        wanted = [f"SLURM_CONF={self.work / 'slurm.conf'}", *more]
        found = []
        for entry in Path("/proc").glob("[0-9]*/environ"):
            try:
                entries = entry.read_bytes().split(b"\0")
            except OSError:  # ended, or another user's
                continue
            if all(text.encode() in entries for text in wanted):
                found.append(int(entry.parent.name))
        return found

    def kill(self, *more: str) -> None:
        """Send SIGKILL to these `processes`; none sees another one die."""
        doomed = self.processes(*more)
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for process in doomed:
                with suppress(ProcessLookupError):
                    os.kill(process, number)

    def start_node(self, node: str) -> None:
        self._start("slurmd", "-D", "-N", node, "-d", str(self._program("slurmstepd")), name=node)

    def kill_node(self, node: str) -> None:
        """Kill a node's daemon and all that runs there; it comes back with an empty spool."""
        self.daemons[node].kill()
        self.daemons[node].wait()
        self.kill(f"SLURMD_NODENAME={node}")
        shutil.rmtree(self.work / f"spool-{node}")
        (self.work / f"spool-{node}").mkdir()

    def run(self, *command: object, check: bool = True, **environment: str) -> str:
        return finish(command, 0 if check else None, ROOT, **self.environment, **environment).stdout

    def submit(self, script: Path, *options: object, **environment: str) -> str:
        return self.run("sbatch", "--parsable", *options, script, **environment).strip()

    def job(self, job: str) -> dict[str, str]:
        """Return what Slurm knows of a job: JobState, Restarts, ExitCode and others."""
        return dict(re.findall(r"(\w+)=(\S*)", self.run("scontrol", "show", "job", "-o", job)))

    def begin_again(self, job: str) -> None:
        """Start a requeued job not in two minutes but once its last round cannot harm the next.

        An old step removes sockets of the new one's name, and credentials of the second of the
        requeue are revoked.
        """
        self.wait_for_steps()
        self.run("scontrol", "update", f"JobId={job}", "StartTime=now+2")

    def wait_for_steps(self) -> None:
        """Return when no job has a process left."""
        self._wait(
            lambda: not any(_name(process).startswith("slurmstepd") for process in self.processes())
        )

    def logs(self) -> str:
        return "\n".join(
            f"== {file.name}\n{file.read_text(errors='replace')}"
            for file in sorted(self.work.glob("*.out"))
        )

    def _configuration(self) -> str:
        return CONF.format(
            host=socket.gethostname().split(".")[0], first=random.randrange(10**6, 6 * 10**7),
            user=getpass.getuser(), ports=_free_ports(3), node=self._node, work=self.work,
            plugins=self.plugins,
        )  # fmt: skip

    def _program(self, name: str) -> Path:
        """Return a program under its own name: under Debian's the controller acts as a client."""
        link = self.work / "sbin" / name
        if not link.exists():
            link.parent.mkdir(exist_ok=True)
            names = (self.sbin / f"{name}-wlm", self.sbin / name)
            link.symlink_to(next(path for path in names if path.exists()))
        return link

    def _start(self, program: str, *arguments: str, name: str = "") -> None:
        name = name or program
        variables = {**os.environ, **self.environment}
        if name in NODES:
            variables["SLURMD_NODENAME"] = name
        line, none = [self._program(program), *arguments], subprocess.DEVNULL
        with open(self.work / f"{name}.out", "ab") as output:
            streams = {"stdin": none, "stdout": output, "stderr": output, "env": variables}
            self.daemons[name] = subprocess.Popen(line, **streams, preexec_fn=_end_with_parent)

    def _wait(self, condition) -> None:
        end = time.monotonic() + 300
        while not condition():
            if time.monotonic() > end:
                raise RuntimeError(f"the test's Slurm does not do what it should\n{self.logs()}")
            time.sleep(0.05)


def _name(process: int) -> str:
    try:
        return Path(f"/proc/{process}/comm").read_text()
    except OSError:
        return ""


def _end_with_parent() -> None:
    """Let the kernel end this daemon when the test is killed; leave no core files."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def _free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [taken.getsockname()[1] for taken in sockets]
    for taken in sockets:
        taken.close()
    return ports
