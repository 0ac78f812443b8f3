"""Queue of training jobs that the page has started, one after the other, each a process of its own.

A job is a checked request: a task, a text of the folder and options; or a run to resume. Its process is `recur train`
or `recur resume` with a list of arguments, in the folder of runs and in a new process session: it continues when the
page is closed, and when the studio is killed. When the studio exits normally, the job is stopped as by Ctrl-C, can be
resumed, unless it is to be kept. Waiting jobs are stored in a file, and checked again when it is read.
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
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from recur.cells import cell_names
from recur.errors import OptionError, RecurError, RunError, unknown
from recur.i18n import MESSAGES, Language, Message, catalogue, decode, encode, translate
from recur.options import documentation, field_of, flag_of, group_of, hints, spelled, value_of
from recur.runs import holder_of, is_run
from recur.runs.manifest import parse_object
from recur.runs.safe_dir import SafeDir
from recur.serve.http import BusyError, UnknownError, without_folders
from recur.studio.runs import last_point
from recur.studio.uploads import FOLDER, TextStore, clean_name, split_name
from recur.tasks import arguments_of, make_options, options_class, task_names
from recur.tasks.common.registry import GROUPS, ORIGINS, PATHS, shown_default
from recur.utils.processes import python_command, python_environment
from recur.utils.types import JsonObject

LOG_TAIL_BYTES = 4096
"""Bytes read at the end of a process's log."""
MEASURED, NOTHING = re.compile(r"(recur: )?step +\d"), re.compile(r"(?!)")
"""Pattern of metric lines, which the page shows as numbers; and a pattern that matches nothing."""


def last_line(place: SafeDir, name: str, without: re.Pattern[str] = NOTHING) -> str:
    """Return the last line of a file that is not empty and does not match `without`; "" if there is no such file."""
    try:
        lines = place.read_from(name, -LOG_TAIL_BYTES, LOG_TAIL_BYTES)[0].decode(errors="replace").splitlines()
    except (OSError, RecurError):
        return ""
    kept = (line.strip() for line in reversed(lines) if line.strip() and not without.match(line))
    return next(kept, "").removeprefix("recur: ")


REFUSED = (*PATHS, *ORIGINS, "compress")
"""Options that name files, and one for several processes."""
NAMES = (
    *("target", "covariates", "past_covariates", "static", "date", "id"),
    *("text", "label", "source", "group", "words", "tags", "sentence"),
    "untouched",
)
"""Options with any text: columns of a table and names of options, which never name files."""
MAIN = ("cell", "hidden_size", "num_layers", "minutes", "steps", "lr")
"""Options shown first; the others are under "more options"."""
KINDS = {int: "int", float: "float", bool: "bool", str: "text"}


def describe_tasks(language: Language = "en") -> list[JsonObject]:
    """Return every task with its options, in the order of the page."""
    return [
        {
            "name": task,
            "about": translate(task, language, "task")
            if language != "en"
            else " ".join((options_class(task).__doc__ or "").split("\n")[0].split()),
            "text": "texts" in options_class(task).names(),
            "options": _describe_options(task, language),
        }
        for task in task_names()
    ]


def _describe_options(task: str, language: Language) -> list[JsonObject]:
    cls = options_class(task)
    texts = documentation(cls)
    found = []
    for name, hint in hints(cls).items():
        group = group_of(cls, name)
        if name in REFUSED or group == "Carry over":  # which is all about those
            continue
        option: JsonObject = {
            "name": spelled(name),
            "flag": flag_of(name),
            "group": "" if group == task else group,
            "main": name in MAIN,
            "default": shown_default(cls, name),
            "help": " ".join(texts[name].split()),
        }
        if language != "en":
            known = catalogue(language)
            option["help"] = known.get(("option", f"{task}.{name}")) or known.get(("option", name)) or option["help"]
        found.append(option | _option_kind(name, value_of(hint)))
    order = ("", *GROUPS)
    return sorted(found, key=lambda option: order.index(option["group"]) if option["group"] in order else 0)


def _option_kind(name: str, kind: Any) -> JsonObject:
    if name == "cell":
        return {"kind": "choice", "choices": list(cell_names()), "help": ""}
    if get_origin(kind) is Literal:
        return {"kind": "choice", "choices": list(get_args(kind))}
    if get_origin(kind) is tuple:
        return {"kind": "list", "of": KINDS[get_args(kind)[0]]}
    return {"kind": KINDS[kind]}


def check_options(task: str, given: Mapping[str, object]) -> dict[str, object]:
    """Return the checked option fields of a request; refuse options that name files or run code."""
    fields = {field_of(name): value for name, value in given.items()}
    for name in fields:
        if name in REFUSED:
            raise OptionError(
                Message("{option} is not for the page: it names files; use the command line", option=flag_of(name))
            )
    cell = fields.get("cell")
    if cell is not None and cell not in cell_names():
        raise OptionError(unknown("cell", cell, cell_names()))
    make_options(task, fields)
    return fields


JobState = Literal["waiting", "held", "running", "stopping", "stopped", "done", "failed"]
ACTIVE: tuple[JobState, ...] = ("running", "stopping")


@dataclass(frozen=True)
class TrainingJob:
    name: str
    """Name of the run."""
    task: str = ""
    text: str = ""
    options: JsonObject = field(default_factory=dict)
    resumes: bool = False
    """Whether the run exists and is resumed; `options` are then the additional minutes, steps or epochs."""
    keep: bool = False
    """Whether the job continues when the studio exits."""
    state: JobState = "waiting"
    """held: was waiting when the studio exited, or was stopped before its first step."""
    process: int = 0
    error: str = ""

    def __post_init__(self) -> None:
        """Refuse fields of other types: a job may come from a file that another program wrote."""
        strings = (self.name, self.task, self.text, self.error)
        kinds = {str: strings, dict: (self.options,), bool: (self.resumes, self.keep), int: (self.process,)}
        if any(type(value) is not kind for kind, values in kinds.items() for value in values):
            raise OptionError(Message("a field of a training job has the wrong type"))
        if self.state not in get_args(JobState):
            raise OptionError(Message("unknown state of a training job: {state}", state=repr(str(self.state)[:60])))

    def arguments(self, texts: TextStore) -> list[str]:
        """Return the arguments of `recur`, checked here for jobs from requests and from files."""
        if self.resumes:
            more = {name: value for name, value in self.options.items() if name in ("minutes", "steps", "epochs")}
            if more != self.options or not all(type(value) in (int, float) for value in more.values()):
                raise OptionError(Message("a run goes on for minutes, steps or epochs"))
            return ["resume", self.name, *(word for name, n in more.items() for word in (f"--{name}", repr(n)))]
        fields = check_options(self.task, self.options)
        if "texts" in options_class(self.task).names():
            fields["texts"] = texts.file(self.text)
        elif self.text:
            raise OptionError(
                Message("the task {task} generates its data; leave {text} out", task=self.task, text=self.text)
            )
        return ["train", *arguments_of(self.task, fields), "--out", self.name]


STUDIO_FOLDER = ".studio"
"""Folder of the studio's own files: jobs and logs of their processes."""
JOBS = f"{STUDIO_FOLDER}/jobs.json"
WAITING = 100
"""Jobs, at most."""
ENDED = 10
"""Ended jobs that are still shown."""
EVERY = 0.1
"""Seconds between two checks of the process."""
GRACE = 30.0
"""Seconds that a process has to save and exit when the studio exits."""
RESERVED = (FOLDER, STUDIO_FOLDER)
COMMAND = python_command("recur.cli", "main")


class TrainingQueue:
    """Training jobs of a folder of runs, in their order; one of them runs at a time."""

    def __init__(self, folder: Path, texts: TextStore) -> None:
        self.folder, self.texts = folder, texts
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._jobs = {job.name: job for job in self._read()}
        if any(job.state in ACTIVE for job in self._jobs.values()):
            self._attend()

    # Status -------------------------------------------------------------------------------------------------

    def jobs(self, language: Language = "en") -> list[JsonObject]:
        with self._lock:
            jobs = list(self._jobs.values())
        return [
            asdict(job)
            | {
                "said": translate(self._said(job, MEASURED), language) if job.state in ACTIVE else "",
                "error": translate(decode(job.error), language),
            }
            for job in jobs
        ]

    def _said(self, job: TrainingJob, without: re.Pattern[str] = NOTHING) -> str:
        """Return the last line that a process printed and that does not match `without`."""
        line = decode(last_line(SafeDir(self.folder), self._log(job.name), without))
        return without_folders(line, self.folder.resolve())

    def _log(self, name: str) -> str:
        return f"{STUDIO_FOLDER}/{name}.log"

    # Requests -----------------------------------------------------------------------------------------------

    def add(self, job: TrainingJob) -> TrainingJob:
        """Check a job and add it to the end of the queue."""
        job.arguments(self.texts)
        with self._lock:
            if sum(other.state in ("waiting", "held", *ACTIVE) for other in self._jobs.values()) >= WAITING:
                raise BusyError(Message("{n} trainings wait already", n=WAITING))
            job = replace(job, name=self._free_name(job), state="waiting", process=0, error="")
            job.arguments(self.texts)
            self._put(job)
        self._attend()
        return job

    def _free_name(self, job: TrainingJob) -> str:
        """Return a name that no run and no job has: the given one, or the text's name with a number."""
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

    def resume(self, name: str, more: JsonObject, keep: bool = False) -> TrainingJob:
        """Resume a run, or a job that had not started."""
        with self._lock:
            known = self._jobs.get(name)
            if known is not None and known.state in ("waiting", *ACTIVE):
                raise RunError(Message("{name} is in the queue already", name=name))
            if is_run(self.folder / name):
                if holder_of(self.folder / name) is not None:
                    raise RunError(Message("{name} is being trained by another process", name=name))
                job = TrainingJob(name, resumes=True, options=more, keep=keep)
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
        """Stop a job after the current step, as Ctrl-C does; a second call stops it at once."""
        with self._lock:
            job = self._known(name)
            if job.state not in ACTIVE:
                raise RunError(Message("{name} is not being trained from here", name=name))
            self._put(replace(job, state="stopping"))
            self._signal(job)

    def remove(self, name: str) -> None:
        """Remove a job from the queue; its run stays."""
        with self._lock:
            if self._known(name).state in ACTIVE:
                raise RunError(Message("{name} is being trained; stop it first", name=name))
            del self._jobs[name]
            self._changed()

    def keep(self, name: str, keep: bool) -> None:
        """Set whether a job continues when the studio exits."""
        with self._lock:
            self._put(replace(self._known(name), keep=keep))

    def _known(self, name: str) -> TrainingJob:
        if name not in self._jobs:
            raise UnknownError(Message("unknown training {name}", name=repr(name[:100])))
        return self._jobs[name]

    def _put(self, job: TrainingJob) -> None:
        self._jobs[job.name] = job
        self._changed()

    def _changed(self) -> None:
        ended = [name for name, job in self._jobs.items() if job.state in ("done", "failed", "stopped")]
        for name in ended[:-ENDED]:
            del self._jobs[name]
        SafeDir(self.folder).make_folder(STUDIO_FOLDER)
        content = [asdict(job) for job in self._jobs.values()]
        SafeDir(self.folder).write(JOBS, json.dumps({"jobs": content}, indent=1).encode())

    # The process --------------------------------------------------------------------------------------------

    def _attend(self) -> None:
        """Start the thread that starts waiting jobs and watches the running one, unless it runs already."""
        with self._lock:
            if not self._closed and (self._thread is None or not self._thread.is_alive()):
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            with self._lock:
                job = next((job for job in self._jobs.values() if job.state in ACTIVE), None)
                if job is not None:
                    self._look(job)
                else:
                    job = next((job for job in self._jobs.values() if job.state == "waiting"), None)
                    if job is None or self._closed:
                        self._thread = None
                        return
                    self._start(job)
            time.sleep(EVERY)

    def _start(self, job: TrainingJob) -> None:
        try:
            place = SafeDir(self.folder)
            place.make_folder(STUDIO_FOLDER)
            command = [*COMMAND, *job.arguments(self.texts)]
            place.write(self._log(job.name), b"")  # replaces whatever is there, even a pipe or a link
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

    def _look(self, job: TrainingJob) -> None:
        if self._process is None:  # started by an earlier studio process
            if not self._holds(job):
                self._end(job, 0 if self._progress(job) >= 1 else 130)
            return
        code = self._process.poll()
        if code is not None:
            self._process = None
            self._end(job, code)

    def _end(self, job: TrainingJob, code: int) -> None:
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

    def _progress(self, job: TrainingJob) -> float:
        progress = last_point(self.folder / job.name).get("progress")
        return float(progress) if isinstance(progress, int | float) else 0.0

    def _holds(self, job: TrainingJob) -> bool:
        """Return True if the process of a job, started by an earlier studio, still holds the run's lock."""
        holder = holder_of(self.folder / job.name) or {}
        return holder.get("process") == str(job.process) and holder.get("host") == socket.gethostname()

    def _signal(self, job: TrainingJob) -> None:
        if self._process is not None:
            self._process.terminate()
        elif self._holds(job):
            with suppress(ProcessLookupError):
                os.kill(job.process, signal.SIGTERM)

    # Exit and start -----------------------------------------------------------------------------------------

    def close(self) -> str:
        """Stop the running job unless it is to be kept; return its name, or "" if none was stopped."""
        with self._lock:
            self._closed = True
            job = next((job for job in self._jobs.values() if job.state in ACTIVE), None)
            if job is None or job.keep:
                return ""
            self._put(replace(job, state="stopping"))
            self._signal(job)
        until = time.monotonic() + GRACE
        while time.monotonic() < until:
            with self._lock:
                if self._jobs[job.name].state in ACTIVE:
                    self._look(self._jobs[job.name])
                if self._jobs[job.name].state not in ACTIVE:
                    break
            time.sleep(EVERY)
        return job.name

    def _read(self) -> list[TrainingJob]:
        """Return the jobs of an earlier studio that are running, had not started, or had failed."""
        try:
            kept = (parse_object(SafeDir(self.folder).read(JOBS, 1 << 22)) or {}).get("jobs")
        except (OSError, RecurError):  # no such file, or a link in its place
            return []
        found = []
        for entry in kept if isinstance(kept, list) else []:
            try:
                job = TrainingJob(**entry)
                if clean_name(job.name, "") != job.name or job.name in RESERVED:
                    continue
                job.arguments(self.texts)
            except (TypeError, AttributeError, RecurError):  # written by another version or another program
                continue
            if job.state in ACTIVE and self._holds(job):
                found.append(replace(job, state="running"))
            elif job.state == "failed":
                found.append(job)
            elif job.state != "done" and not is_run(self.folder / job.name):
                found.append(replace(job, state="held", process=0))
        return found
