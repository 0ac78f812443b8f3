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
import threading
import time
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from recur.errors import OptionError, RecurError, RunError
from recur.i18n import MESSAGES, Language, Message, decode, encode, translate
from recur.runs import holder_of, is_run
from recur.runs.manifest import parse_object
from recur.runs.safe_dir import Place
from recur.serve.http.answers import BusyError, UnknownError, without_folders
from recur.studio.job import AT_WORK, Job
from recur.studio.points import last_point
from recur.studio.printed import MEASURED, NOTHING, last_line
from recur.studio.texts import FOLDER, Texts, clean_name, split_name
from recur.utils.processes import python_command, python_environment
from recur.utils.types import JsonObject

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
COMMAND = python_command("recur.cli", "main")


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
                "said": translate(self._said(job, MEASURED), language) if job.state in AT_WORK else "",
                "error": translate(decode(job.error), language),
            }
            for job in jobs
        ]

    def _said(self, job: Job, without: re.Pattern[str] = NOTHING) -> str:
        """The last line that a process printed, without some of them."""
        line = decode(last_line(Place(self.folder), self._log(job.name), without))
        return without_folders(line, self.folder.resolve())

    def _log(self, name: str) -> str:
        return f"{OWN}/{name}.log"

    # What is asked ------------------------------------------------------------------------------------------

    def add(self, job: Job) -> Job:
        """A training behind those that wait; what is wrong with it is said before."""
        job.arguments(self.texts)
        with self._lock:
            if sum(other.state in ("waiting", "held", *AT_WORK) for other in self._jobs.values()) >= WAITING:
                raise BusyError(Message("{n} trainings wait already", n=WAITING))
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
                raise OptionError(
                    Message("{name} cannot name a run: letters, digits, - and _, at most 60", name=repr(job.name[:60]))
                )
            if not self._is_free(name):
                raise RunError(Message("there is a run or a training named {name} already", name=name))
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
                raise RunError(Message("{name} is in the queue already", name=name))
            if is_run(self.folder / name):
                if holder_of(self.folder / name) is not None:
                    raise RunError(Message("{name} is being trained by another process", name=name))
                job = Job(name, resumes=True, options=more, keep=keep)
            elif known is not None and not known.resumes and not more:
                job = replace(known, state="waiting", keep=keep, error="")
            else:
                raise UnknownError(Message("unknown run {name}", name=repr(name[:100])))
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
                raise RunError(Message("{name} is not being trained from here", name=name))
            self._put(replace(job, state="stopping"))
            self._signal(job)

    def remove(self, name: str) -> None:
        """Take a job out of the queue; a run of it stays as it is."""
        with self._lock:
            if self._known(name).state in AT_WORK:
                raise RunError(Message("{name} is being trained; stop it first", name=name))
            del self._jobs[name]
            self._changed()

    def keep(self, name: str, keep: bool) -> None:
        """Whether a job goes on when the studio ends."""
        with self._lock:
            self._put(replace(self._known(name), keep=keep))

    def _known(self, name: str) -> Job:
        if name not in self._jobs:
            raise UnknownError(Message("unknown training {name}", name=repr(name[:100])))
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
            place = Place(self.folder)
            place.make_folder(OWN)
            command = [*COMMAND, *job.arguments(self.texts)]
            place.write(self._log(job.name), b"")  # replaces whatever is there, a pipe or a link too
            with place.opened(self._log(job.name), os.O_WRONLY | os.O_APPEND) as log:
                quiet = subprocess.DEVNULL
                self._process = subprocess.Popen(
                    command,
                    cwd=self.folder,
                    env=python_environment() | {MESSAGES: "json"},
                    stdin=quiet,
                    stdout=quiet,
                    stderr=log,
                    start_new_session=True,
                )
        except (RecurError, OSError) as error:
            self._put(replace(job, state="failed", error=encode(without_folders(str(error), self.folder))))
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
            if code < 0:
                error: str = Message("its process was ended by signal {n}", n=-code)
            else:
                error = self._said(job) or Message("its process ended with {n}", n=code)
            job = replace(job, state="failed", error=encode(error))
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
