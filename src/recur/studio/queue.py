"""Trainings that the page has started, one after the other, each a process of its own.

A job is a request that was checked: a task, a text of the folder, options; or a run to go on with. Its process is
`recur train` or `recur resume` with a list of arguments, in the folder of runs and in a session of its own: it goes on
when the page is closed, and when the studio is killed. Where the studio ends in peace, it is stopped as by Ctrl-C and
can be resumed, unless it was to be kept. What waits is written down, and checked again when it is read back.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from recur.errors import OptionError, RecurError, RunError
from recur.run import holder_of, is_run
from recur.run.logs import parse_object
from recur.run.place import NO_LINK, Place
from recur.studio.job import AT_WORK, Job
from recur.studio.points import last_point
from recur.studio.printed import MEASURED, NOTHING, last_line
from recur.studio.texts import FOLDER, Texts, clean_name, split_name
from recur.typedefs import JsonObject
from recur.web.answers import BusyError, UnknownError, without_folders
from recur.wording import Language, in_language

OWN = ".studio"
"""The folder of what the studio itself keeps: its jobs, and what their processes print."""
JOBS = f"{OWN}/jobs.json"
WAITING = 100
"""Jobs, at most."""
ENDED = 10
"""Jobs that have ended and are still shown."""
EVERY = 0.1
"""Seconds between looks at the process."""
GRACE = 30.0
"""Seconds for a process to save and end, when the studio does."""
RESERVED = (FOLDER, OWN)
COMMAND = [sys.executable, "-P", "-m", "recur"]
"""-P: what lies in the folder of runs, which may be a stranger's, is not imported."""


class Queue:
    """The jobs of a folder of runs, in their order; one of them trains."""

    def __init__(self, folder: Path, texts: Texts) -> None:
        self.folder, self.texts = folder, texts
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._jobs = {job.name: job for job in self._read()}
        if any(job.state in AT_WORK for job in self._jobs.values()):
            self._attend()

    # What there is ------------------------------------------------------------------------------------------

    def jobs(self, language: Language = "en") -> list[JsonObject]:
        with self._lock:
            jobs = list(self._jobs.values())
        return [
            asdict(job)
            | {
                "said": in_language(self._said(job, MEASURED), language) if job.state in AT_WORK else "",
                "error": in_language(job.error, language),
            }
            for job in jobs
        ]

    def _said(self, job: Job, without: re.Pattern[str] = NOTHING) -> str:
        """The last line that a process printed, without some of them."""
        return without_folders(last_line(self._log(job.name), without), self.folder.resolve())

    def _log(self, name: str) -> Path:
        return self.folder / OWN / f"{name}.log"

    # What is asked ------------------------------------------------------------------------------------------

    def add(self, job: Job) -> Job:
        """A training behind those that wait; what is wrong with it is said before."""
        job.arguments(self.texts)
        with self._lock:
            if sum(other.state in ("waiting", "held", *AT_WORK) for other in self._jobs.values()) >= WAITING:
                raise BusyError(f"{WAITING} trainings wait already")
            job = replace(job, name=self._free_name(job), state="waiting", process=0, error="")
            job.arguments(self.texts)
            self._put(job)
        self._attend()
        return job

    def _free_name(self, job: Job) -> str:
        """A name that no run and no job has: the one given, or else the text's with a number behind it."""
        if job.name:
            name = clean_name(job.name, "")
            if name != job.name or name in RESERVED:
                raise OptionError(f"{job.name[:60]!r} cannot name a run: letters, digits, - and _, at most 60")
            if not self._is_free(name):
                raise RunError(f"there is a run or a training named {name} already")
            return name
        stem = split_name(job.text)[0] or job.task
        names = (stem, *(f"{stem}-{k}" for k in range(2, 10_000)))
        return next(name for name in names if name not in RESERVED and self._is_free(name))

    def _is_free(self, name: str) -> bool:
        known = self._jobs.get(name)
        return not os.path.lexists(self.folder / name) and (known is None or known.state in ("done", "failed"))

    def resume(self, name: str, more: JsonObject, keep: bool = False) -> Job:
        """Go on with a run that is there, or with a job that had not begun."""
        with self._lock:
            known = self._jobs.get(name)
            if known is not None and known.state in ("waiting", *AT_WORK):
                raise RunError(f"{name} is in the queue already")
            if is_run(self.folder / name):
                if holder_of(self.folder / name) is not None:
                    raise RunError(f"{name} is being trained by another process")
                job = Job(name, resumes=True, options=more, keep=keep)
            elif known is not None and not known.resumes and not more:
                job = replace(known, state="waiting", keep=keep, error="")
            else:
                raise UnknownError(f"unknown run {name[:100]!r}")
            job.arguments(self.texts)
            self._jobs.pop(name, None)
            self._put(job)
        self._attend()
        return job

    def stop(self, name: str) -> None:
        """As Ctrl-C does: after the step in progress; asked again, at once."""
        with self._lock:
            job = self._known(name)
            if job.state not in AT_WORK:
                raise RunError(f"{name} is not being trained from here")
            self._put(replace(job, state="stopping"))
            self._signal(job)

    def remove(self, name: str) -> None:
        """Take a job out of the queue; a run of it stays as it is."""
        with self._lock:
            if self._known(name).state in AT_WORK:
                raise RunError(f"{name} is being trained; stop it first")
            del self._jobs[name]
            self._changed()

    def keep(self, name: str, keep: bool) -> None:
        """Whether a job goes on when the studio ends."""
        with self._lock:
            self._put(replace(self._known(name), keep=keep))

    def _known(self, name: str) -> Job:
        if name not in self._jobs:
            raise UnknownError(f"unknown training {name[:100]!r}")
        return self._jobs[name]

    def _put(self, job: Job) -> None:
        self._jobs[job.name] = job
        self._changed()

    def _changed(self) -> None:
        ended = [name for name, job in self._jobs.items() if job.state in ("done", "failed", "stopped")]
        for name in ended[:-ENDED]:
            del self._jobs[name]
        Place(self.folder).make_folder(OWN)
        content = [asdict(job) for job in self._jobs.values()]
        Place(self.folder).write(JOBS, json.dumps({"jobs": content}, indent=1).encode())

    # The process --------------------------------------------------------------------------------------------

    def _attend(self) -> None:
        """Have a thread that starts what waits and looks at what runs, as long as there is something."""
        with self._lock:
            if not self._closed and (self._thread is None or not self._thread.is_alive()):
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            with self._lock:
                job = next((job for job in self._jobs.values() if job.state in AT_WORK), None)
                if job is not None:
                    self._look(job)
                else:
                    job = next((job for job in self._jobs.values() if job.state == "waiting"), None)
                    if job is None or self._closed:
                        self._thread = None
                        return
                    self._start(job)
            time.sleep(EVERY)

    def _start(self, job: Job) -> None:
        try:
            Place(self.folder).make_folder(OWN)
            command = [*COMMAND, *job.arguments(self.texts)]
            log = os.open(self._log(job.name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | NO_LINK, 0o666)
            try:
                quiet = subprocess.DEVNULL
                self._process = subprocess.Popen(
                    command, cwd=self.folder, stdin=quiet, stdout=quiet, stderr=log, start_new_session=True
                )
            finally:
                os.close(log)
        except (RecurError, OSError) as error:
            self._put(replace(job, state="failed", error=without_folders(str(error), self.folder)))
            return
        self._put(replace(job, state="running", process=self._process.pid))

    def _look(self, job: Job) -> None:
        if self._process is None:  # of a studio before this one
            if not self._holds(job):
                self._end(job, 0 if self._progress(job) >= 1 else 130)
            return
        code = self._process.poll()
        if code is not None:
            self._process = None
            self._end(job, code)

    def _end(self, job: Job, code: int) -> None:
        if code == 0:
            job = replace(job, state="done")
        elif code in (130, -signal.SIGTERM, -signal.SIGINT) or job.state == "stopping":
            job = replace(job, state="stopped" if is_run(self.folder / job.name) else "held")
        else:
            killed = f"its process was ended by signal {-code}" if code < 0 else ""
            job = replace(job, state="failed", error=killed or self._said(job) or f"its process ended with {code}")
        self._put(replace(job, process=0))

    def _progress(self, job: Job) -> float:
        progress = last_point(self.folder / job.name).get("progress")
        return float(progress) if isinstance(progress, int | float) else 0.0

    def _holds(self, job: Job) -> bool:
        """Whether the process of a job, which an earlier studio started, is still at it: as the run's lock says."""
        holder = holder_of(self.folder / job.name) or {}
        return holder.get("process") == str(job.process) and holder.get("host") == socket.gethostname()

    def _signal(self, job: Job) -> None:
        if self._process is not None:
            self._process.terminate()
        elif self._holds(job):
            with suppress(ProcessLookupError):
                os.kill(job.process, signal.SIGTERM)

    # The end and the beginning ------------------------------------------------------------------------------

    def close(self) -> str:
        """The studio ends: what trains is saved and stopped, unless it is to be kept. The name of what was stopped."""
        with self._lock:
            self._closed = True
            job = next((job for job in self._jobs.values() if job.state in AT_WORK), None)
            if job is None or job.keep:
                return ""
            self._put(replace(job, state="stopping"))
            self._signal(job)
        until = time.monotonic() + GRACE
        while time.monotonic() < until:
            with self._lock:
                if self._jobs[job.name].state in AT_WORK:
                    self._look(self._jobs[job.name])
                if self._jobs[job.name].state not in AT_WORK:
                    break
            time.sleep(EVERY)
        return job.name

    def _read(self) -> list[Job]:
        """The jobs of an earlier studio: what still trains, what had not begun, and what had failed."""
        try:
            kept = (parse_object(Place(self.folder).read(JOBS, 1 << 22)) or {}).get("jobs")
        except (OSError, RecurError):  # there is none, or a link in its place
            return []
        found = []
        for entry in kept if isinstance(kept, list) else []:
            try:
                job = Job(**entry)
                if clean_name(job.name, "") != job.name or job.name in RESERVED:
                    continue
                job.arguments(self.texts)
            except (TypeError, AttributeError, RecurError):  # of another version, or somebody else's
                continue
            if job.state in AT_WORK and self._holds(job):
                found.append(replace(job, state="running"))
            elif job.state == "failed":
                found.append(job)
            elif job.state != "done" and not is_run(self.folder / job.name):
                found.append(replace(job, state="held", process=0))
        return found
