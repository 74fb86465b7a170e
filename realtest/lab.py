"""Stand a real Slurm up on one host: munge, MariaDB, slurmdbd, slurmctld, and a slurmd on a port for each node.

Needs root and `apt-get install --no-install-recommends slurm-wlm slurmdbd mariadb-server munge`. GPUs are character
devices that stand for nothing. Two labs with folders and ports of their own may run side by side.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from fleetlab.core.cluster import Cluster
from fleetlab.schedulers.slurm.config import Slurm
from fleetlab.schedulers.slurm.reader.conf_writer import accounts, slurm_conf

PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "munged", "mariadbd", "mariadb-install-db", "sbatch", "sacctmgr")
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
MOST_GPUS = 16
NULL_DEVICE = os.makedev(1, 3)

DAEMONS = """\
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={folder}/ctld
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/pid/slurmctld.pid
SlurmdPidFile={folder}/pid/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
SlurmctldDebug=info
SlurmdDebug=error
LogTimeFormat=iso8601_ms
ReturnToService=1
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
# the host has few cores: the file is believed, not the machine
SlurmdParameters=config_overrides
SlurmdTimeout=60
SlurmctldTimeout=60
InactiveLimit=0
MinJobAge=3600
MaxJobCount=20000
MaxArraySize=2000
PrologFlags=Alloc
GresTypes=gpu
DefMemPerCPU=1000
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={accounting_port}
AccountingStorageTRES={tres}
"""

DATABASE_DAEMON = """\
AuthType=auth/munge
DbdHost={host}
DbdPort={accounting_port}
CommunicationParameters=NoInAddrAny
SlurmUser=root
LogFile={folder}/log/slurmdbd.log
PidFile={folder}/pid/slurmdbd.pid
DebugLevel=error
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm_acct_db
"""


class LabError(RuntimeError):
    """The lab cannot stand, or did not do what was asked."""


def missing() -> str | None:
    """Say why no lab can stand here; None where it can."""
    if os.geteuid() != 0:
        return "not root: the daemons start jobs as other users"
    absent = [program for program in PROGRAMS if not shutil.which(program, path=PATH)]
    return f"not installed: {', '.join(absent)}" if absent else None


def gres_conf(cluster: Cluster, device: str = "/dev/nvidia") -> str:
    """Return gres.conf: the GPUs of each node by type, as device files numbered from 0."""
    lines = ["AutoDetect=off"]
    for node, gpu_type, gpus in cluster.frame.select("node", "gpu_type", "gpus").iter_rows():
        if gpus:
            numbers = f"[0-{gpus - 1}]" if gpus > 1 else "0"
            lines.append(f"NodeName={node} Name=gpu Type={gpu_type} File={device}{numbers}")
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Lab:
    """A folder with all that its daemons write, and the first of the ports that they listen on."""

    folder: Path
    port: int = 16_817

    @property
    def environment(self) -> dict[str, str]:
        """What Slurm's commands need to find this lab."""
        database = str(self.folder / "mysql" / "socket")
        return {
            **os.environ,
            "PATH": PATH,
            "TZ": "UTC",  # Slurm writes local times
            "SLURM_CONF": str(self.folder / "etc" / "slurm.conf"),
            "MYSQL_UNIX_PORT": database,
            "MARIADB_UNIX_PORT": database,
        }

    def run(self, *words: str, check: bool = True) -> str:
        """Run a command of Slurm here and return what it printed."""
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, check=False)
        if check and done.returncode:
            msg = f"{' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}"
            raise LabError(msg)
        return done.stdout

    # -- up ------------------------------------------------------------------------------------------------------------

    def up(self, cluster: Cluster, slurm: Slurm) -> None:
        """Start all daemons, with an empty queue and an empty accounting database."""
        if reason := missing():
            raise LabError(reason)
        self.down()
        self._folders()
        self._configure(cluster, slurm)
        self._users(slurm)
        self._munge()
        self._database()
        self._accounting()
        self._classes(slurm, "add")  # slurmctld wants those of partitions to be there
        self._start("slurmctld", "-c")  # -c: nothing of an earlier run
        self._wait(lambda: "UP" in self.run("scontrol", "ping", check=False), "slurmctld")
        self._wait(lambda: "gres" in self.run("sacctmgr", "show", "tres", check=False), "slurmctld in the accounting")
        self._accounts(slurm)
        for node in cluster.frame["node"]:
            self._start("slurmd", "-N", node)
        self._wait(lambda: self._idle() == len(cluster), "all nodes idle")

    def _folders(self) -> None:
        for name in ("etc", "ctld", "spool", "log", "munge", "mysql", "dev", "pid"):
            if name in ("ctld", "spool", "log"):
                shutil.rmtree(self.folder / name, ignore_errors=True)
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(MOST_GPUS):
            if not (device := self.folder / "dev" / f"gpu{number}").exists():
                os.mknod(device, stat.S_IFCHR | 0o666, NULL_DEVICE)
        for above in (self.folder, *self.folder.parents):  # jobs run as other users
            above.chmod(above.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)

    def _configure(self, cluster: Cluster, slurm: Slurm) -> None:
        host = socket.gethostname().split(".")[0]
        types = sorted({t for t in cluster.frame["gpu_type"] if t is not None})
        tres = ",".join(["gres/gpu", *(f"gres/gpu:{t}" for t in types)])
        words = {"host": host, "port": self.port, "accounting_port": self.port + 2, "folder": self.folder, "tres": tres}
        place = {n: self._address(host, k) for k, n in enumerate(cluster.frame["node"])}
        etc = self.folder / "etc"
        hooks = "".join(
            f"{hook}={self._sleeper(hook, seconds)}\n"
            for hook, seconds in {"Prolog": slurm.prolog, "Epilog": slurm.epilog}.items()
            if seconds
        )
        (etc / "slurm.conf").write_text(f"{DAEMONS.format(**words)}{hooks}include {etc}/site.conf\n")
        (etc / "site.conf").write_text(slurm_conf(cluster, slurm, place))
        (etc / "gres.conf").write_text(gres_conf(cluster, f"{self.folder}/dev/gpu"))
        (etc / "slurmdbd.conf").write_text(DATABASE_DAEMON.format(**words))
        (etc / "slurmdbd.conf").chmod(0o600)

    def _address(self, host: str, number: int) -> str:
        return f"NodeHostname={host} NodeAddr=127.0.0.1 Port={self.port + 100 + number} State=UNKNOWN"

    def _sleeper(self, hook: str, seconds: float) -> Path:
        script = self.folder / "etc" / f"{hook.lower()}.sh"
        script.write_text(f"#!/bin/sh\nsleep {seconds:g}\n")
        script.chmod(0o755)
        return script

    def _users(self, slurm: Slurm) -> None:
        for user in {q.user for q in slurm.queues.values() if q.user}:
            if subprocess.run(["id", user], capture_output=True, check=False).returncode:
                subprocess.run(["useradd", "-M", "-s", "/bin/sh", "-d", "/tmp", user], check=True)

    def _munge(self) -> None:
        """Start munged where no other lab has; all share its usual socket, which slurmdbd's clients insist on."""
        if subprocess.run(["munge", "-n"], capture_output=True, check=False).returncode == 0:
            return
        run = Path("/run/munge")
        run.mkdir(exist_ok=True)
        run.chmod(0o755)
        for owned in (run, self.folder / "munge"):
            shutil.chown(owned, "munge", "munge")
        words = ["setpriv", "--reuid=munge", "--regid=munge", "--clear-groups", "munged", "--force"]
        words += [f"--log-file={self.folder}/munge/log", f"--seed-file={self.folder}/munge/seed"]
        self.run(*words, f"--pid-file={self.folder}/munge/pid", "--socket=/run/munge/munge.socket.2")

    def _database(self) -> None:
        folder = self.folder / "mysql"
        if not (folder / "mysql").is_dir():
            shutil.chown(folder, "mysql", "mysql")
            install = ["mariadb-install-db", "--user=mysql", f"--datadir={folder}", "--skip-test-db"]
            self.run(*install, "--auth-root-authentication-method=socket")
        if not self._answers():
            words = [
                "setsid",
                "--fork",
                "mariadbd",
                "--no-defaults",
                "--user=mysql",
                f"--datadir={folder}",
                f"--socket={folder}/socket",
            ]
            words += [f"--pid-file={folder}/pid", "--skip-networking", "--innodb-buffer-pool-size=256M"]
            words += ["--innodb-lock-wait-timeout=900", "--innodb-flush-log-at-trx-commit=2"]
            with (self.folder / "log" / "mariadbd.log").open("w") as log:
                subprocess.run(words, env=self.environment, stdout=log, stderr=log, check=True)
            self._wait(self._answers, "MariaDB")
        socket_word = f"--socket={folder}/socket"
        self.run("mariadb", socket_word, "-e", "DROP DATABASE IF EXISTS slurm_acct_db")

    def _answers(self) -> bool:
        words = ["mariadb-admin", f"--socket={self.folder}/mysql/socket", "ping"]
        return subprocess.run(words, env=self.environment, capture_output=True, check=False).returncode == 0

    def _accounting(self) -> None:
        self._start("slurmdbd")
        self._wait(lambda: "Cluster" in self.run("sacctmgr", "show", "cluster", check=False), "slurmdbd")
        self.run("sacctmgr", "-i", "add", "cluster", "lab")

    def _classes(self, slurm: Slurm, what: str) -> None:
        for words in accounts(Slurm(qos=slurm.qos)):
            if words[0] == what:
                self.run("sacctmgr", "-i", *words)

    def _accounts(self, slurm: Slurm) -> None:
        if slurm.qos:
            # The root's own user runs the harness, and may use every class.
            names = ",".join(["normal", *(q.name for q in slurm.qos if q.name != "normal")])
            self._classes(slurm, "modify")
            self.run("sacctmgr", "-i", "modify", "account", "root", "set", f"qos={names}")
        for words in accounts(Slurm(queues=slurm.queues)):
            self.run("sacctmgr", "-i", *words)

    def _start(self, *words: str) -> None:
        self.run("nice", "-n", str(-10 - os.nice(0)), *words)

    def _idle(self) -> int:
        return len(set(self.run("sinfo", "-h", "-t", "idle", "-N", "-o", "%N", check=False).split()))

    def _wait(self, ready: Callable[[], bool], what: str, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not ready():
            if time.monotonic() > end:
                msg = f"not there within {seconds:.0f} s: {what}; the logs are in {self.folder / 'log'}"
                raise LabError(msg)
            time.sleep(0.2)

    # -- down ----------------------------------------------------------------------------------------------------------

    def down(self, *, everything: bool = False) -> None:
        """End the daemons by their ids, the nodes first; `everything` ends the database, and munged if it was ours."""
        pids = self.folder / "pid"
        _end(sorted(pids.glob("slurmd-*.pid")))
        _end([pids / "slurmctld.pid"])
        _end([pids / "slurmdbd.pid"])
        if everything:
            _end([self.folder / "mysql" / "pid", self.folder / "munge" / "pid"])


def _end(files: Iterable[Path]) -> None:
    """Ask all of them to end, then wait for each."""
    numbers = [n for file in files if (n := _pid(file))]
    for number in numbers:
        os.kill(number, signal.SIGTERM)
    end = time.monotonic() + 30
    for number in numbers:
        while _alive(number) and time.monotonic() < end:
            time.sleep(0.05)
    for file in files:
        file.unlink(missing_ok=True)


def _pid(file: Path) -> int | None:
    try:
        number = int(file.read_text())
    except (OSError, ValueError):
        return None
    return number if _alive(number) else None


def _alive(number: int) -> bool:
    """Whether a process runs; one that has ended and nobody asked about does not."""
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
