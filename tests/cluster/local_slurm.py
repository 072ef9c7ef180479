"""A local SLURM for tests: two nodes, arrays of five, no accounting; the system's configuration is not touched.

It needs root, slurm-wlm and munge of Debian. All its files are in a folder; its commands find it by SLURM_CONF. A node
has two CPUs, whether the machine has them or not. The second one is in the partition `pair` alone, not the default.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path

PLACES = ("socket", "key-file", "pid-file", "log-file", "seed-file")  # options of munged
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol", "scancel")
CONFIG = """
ClusterName=precis
SlurmctldHost={host}({address})
SlurmUser=root
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmctldPort={controller}
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2,batch_sched_delay=0
ReturnToService=2
KillWait=60
MaxArraySize=5
SlurmdTimeout=600
MessageTimeout=60
NodeName={host} NodeAddr={address} Port={first} CPUs=2 State=UNKNOWN
NodeName={host}-2 NodeHostname={host} NodeAddr={address} Port={second} CPUs=2 State=UNKNOWN
PartitionName=debug Nodes={host} Default=YES MaxTime=INFINITE State=UP
PartitionName=pair Nodes={host},{host}-2 MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """Return why no SLURM can be started here; an empty string if one can."""
    if os.geteuid() != 0:
        return "a SLURM of the machine's own is started by root alone"
    lacking = [program for program in PROGRAMS if not _program(program)]
    return f"needs Debian's packages slurm-wlm and munge ({', '.join(lacking)} not found)" if lacking else ""


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


class LocalSlurm:
    """Runs munged, slurmctld and slurmd, whose files are in a folder with a short name, as it holds a socket."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.config = folder, folder / "slurm.conf"
        self._processes: list[subprocess.Popen] = []

    def __enter__(self) -> "LocalSlurm":
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self) -> None:
        (self.folder / "state").mkdir(parents=True)
        self.folder.chmod(0o755)  # munged accepts no folder that others may write to, clients must see its socket
        host = socket.gethostname().split(".")[0]
        with ExitStack() as held:  # so that they differ
            probes = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
            ports = dict(zip(("controller", "first", "second"), (probe.getsockname()[1] for probe in probes)))
        text = CONFIG.format(host=host, address="127.0.0.1", folder=self.folder, **ports)
        self.config.write_text(text, encoding="utf-8")
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        places = [f"--{name}={self.folder}/munge.{name.split('-')[0]}" for name in PLACES]
        self._run("munged", "--foreground", "--force", "--num-threads=2", *places)
        self.wait_for((self.folder / "munge.socket").exists, 120)
        self._run("slurmctld", "-D", "-f", str(self.config))
        for node in (host, f"{host}-2"):
            self._run("slurmd", "-D", "-f", str(self.config), "-N", node)
        self.wait_for(lambda: self.ask("sinfo", "-h", "-p", "pair", "-o", "%T %D") == "idle 2", 120)

    def _run(self, program: str, *arguments: str) -> None:
        with (self.folder / f"{program}.out").open("a", encoding="utf-8") as out:
            command = [_program(program), *arguments]
            self._processes.append(subprocess.Popen(command, stdout=out, stderr=out, env=self.environment()))

    def environment(self) -> dict[str, str]:
        """Return the environment of a command that should use this SLURM and no other."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH"))}
        return inherited | {"SLURM_CONF": str(self.config)}

    def ask(self, *command: str, check: bool = False) -> str:
        """Return what a command prints to stdout; its exit status is not looked at unless it is to be checked."""
        done = subprocess.run(command, env=self.environment(), capture_output=True, text=True)
        return f"status {done.returncode}" if check and done.returncode else done.stdout.strip()

    def wait_for(self, ready, seconds: float = 900) -> None:
        """Wait until a condition holds; the limit is generous, because the machine may be busy."""
        until = time.monotonic() + seconds
        while not ready():
            self.hurry()
            dead = [process.args[0] for process in self._processes if process.poll() is not None]
            if dead or time.monotonic() > until:
                logs = "".join(f"\n{path}: {_end(path)}" for path in sorted(self.folder.glob("*.[lo][ou]*")))
                jobs = self.ask("squeue") or "none"
                raise RuntimeError(f"not so after {seconds:.0f} s; ended: {dead or 'none'}; jobs: {jobs}{logs}")
            time.sleep(0.3)

    def hurry(self) -> None:
        """Let requeued jobs start in three seconds, not two minutes; slurmd refuses them at once."""
        for line in self.ask("squeue", "--noheader", "--array", "--states=PENDING", "--format=%i %S %r").splitlines():
            job, start, reason = line.split(" ", 2)
            if reason != "BeginTime" or start == "N/A":  # N/A: not known yet
                continue
            if datetime.fromisoformat(start) > datetime.now() + timedelta(seconds=5):
                self.ask("scontrol", "update", f"JobId={job}", "StartTime=now+3seconds")

    def restarts(self, job: str) -> int:
        return int(re.search(r"Restarts=(\d+)", self.ask("scontrol", "show", "job", "--oneliner", job))[1])

    def wait_until_empty(self) -> None:
        """Wait until there are no jobs; a failed squeue does not count as an empty queue."""
        self.wait_for(lambda: self.ask("squeue", "-h", check=True) == "")

    def stop(self) -> None:
        if len(self._processes) == 4 and self.ask("squeue", "-h"):
            self.ask("scancel", "--signal=KILL", "--full", "--user=root")
            self.ask("scancel", "--user=root")
            until = time.monotonic() + 60
            while self.ask("squeue", "-h") and time.monotonic() < until:
                time.sleep(0.2)
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes = []


def _end(path: Path) -> str:
    return " | ".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-5:])
