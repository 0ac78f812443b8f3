"""Sweep whose trials are in an Optuna storage: several processes and machines work on one search.

    recur sweep names.tsv --task classify --storage sqlite:///names.db      on every machine, or several times on one
    recur sweep names.tsv --task classify --storage journal.log             a file on a shared disk

The storage decides which process runs which trial. Runs are in the sweep folder of the machine that trained them. A
trial whose process died is resumed by the next process that shares its folder: a lock per trial shows who works on it.
"""

from __future__ import annotations

import socket
import warnings
from pathlib import Path
from typing import Any

from recur.errors import RecurError, RunError
from recur.runs.safe_dir import Lock, SafeDir
from recur.training.sweeps.record import SweepRecord, Trial
from recur.training.sweeps.search import STARTUP, Study, TrialMonitor, import_optuna, silence_optuna

CLAIMS = "claims"
"""Folder with one lock for each trial that a process of this folder works on."""


def open_storage(url: str) -> Any:
    """Return the Optuna storage at a database URL, or in a journal file."""
    optuna = import_optuna()
    try:
        if "://" in url:
            return optuna.storages.RDBStorage(url)
        return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(url))
    except Exception as error:  # sqlalchemy raises what its driver does
        message = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise RecurError(f"the storage {_without_password(url)} cannot be opened: {message}") from None


def _without_password(url: str) -> str:
    scheme, at, rest = url.partition("://")
    return f"{scheme}{at}{rest.rpartition('@')[2]}" if at else url


class StorageTrials:
    """Trials of a sweep in an Optuna storage, shared with other processes."""

    def __init__(self, folder: Path, record: SweepRecord, url: str) -> None:
        self.folder, self.record = folder, record
        self.optuna = import_optuna()
        with silence_optuna():
            local = Study(record)
            self.spaces = local.spaces
            self.study = self.optuna.create_study(
                study_name=folder.resolve().name,
                storage=open_storage(url),
                direction=local.direction,
                pruner=local.study.pruner,
                load_if_exists=True,
            )
        request = {name: value for name, value in record.request().items() if name != "options"}
        before = self.study.user_attrs.setdefault("recur", None) or self._first(request)
        if before != request:
            differ = [name for name in request if before.get(name) != request[name]]
            raise RunError(
                f"the storage holds a sweep {self.study.study_name!r} with different settings ({', '.join(differ)}); "
                "name another folder: --out"
            )
        self._claim: Lock | None = None

    def _first(self, request: dict[str, Any]) -> dict[str, Any]:
        self.study.set_user_attr("recur", request)
        return request

    def trials(self) -> list[Trial]:
        """Return all trials, also those of other processes."""
        return [
            self._trial(found) for found in self.study.get_trials(deepcopy=False) if "surplus" not in found.user_attrs
        ]

    def _trial(self, found: Any) -> Trial:
        states = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}
        about = found.user_attrs
        return Trial(
            found.number,
            about.get("params") or dict(found.params),
            states.get(found.state.name, "running"),  # type: ignore[arg-type]
            found.value if found.state.name == "COMPLETE" else None,
            tuple(value for _, value in sorted(found.intermediate_values.items())),
            float(about.get("seconds", 0.0)),
            str(about.get("why", "")),
        )

    def begin(self, trials: int) -> tuple[Trial, TrialMonitor | None] | None:
        """Claim a trial that a dead process left, or start a new one; return None if there are enough."""
        for found in self._running():
            if found.user_attrs.get("host") == socket.gethostname() and self._claimed(found.number, new=False):
                if all(other.number != found.number for other in self._running()):  # it ended before it was claimed
                    self.release()
                    continue
                monitor = TrialMonitor(self.optuna.trial.Trial(self.study, found._trial_id))
                monitor.reported = len(found.intermediate_values)
                return self._trial(found), monitor if found.number else None
        if len(self.trials()) >= trials:
            return None
        asked = self.study.ask()  # which gives the trial its number: processes that ask at the same time get others
        self.study.sampler = self.optuna.samplers.TPESampler(
            n_startup_trials=STARTUP, constant_liar=True, seed=1_000_003 * self.record.seed % 2**31 + asked.number
        )
        if sum(other.number < asked.number for other in self.trials()) >= trials:  # another process was faster
            asked.set_user_attr("surplus", True)
            self.study.tell(asked, state=self.optuna.trial.TrialState.FAIL)
            return None
        self._claimed(asked.number, new=True)  # before others can see whose trial it is
        for name, space in self.spaces.items() if asked.number else ():
            asked._suggest(name, space)
        asked.set_user_attr("host", socket.gethostname())
        monitor = TrialMonitor(asked)
        asked.set_user_attr("params", monitor.params)
        return Trial(asked.number, monitor.params), monitor if asked.params else None

    def _running(self) -> list[Any]:
        found: list[Any] = self.study.get_trials(deepcopy=False, states=(self.optuna.trial.TrialState.RUNNING,))
        return found

    def _claimed(self, number: int, new: bool) -> bool:
        """Take the lock of a trial; return False if another process has it."""
        claim = self.folder / CLAIMS / f"{number:03d}"
        if not new and not claim.is_dir():
            return False  # its folder is another one
        for name in (CLAIMS, f"{CLAIMS}/{number:03d}"):
            SafeDir(self.folder).make_folder(name)
        try:
            self._claim = Lock(claim)
        except RunError:
            return False
        return True

    def keep(self, trial: Trial) -> None:
        """Store the state of a trial."""
        frozen = next(found for found in self.study.get_trials(deepcopy=False) if found.number == trial.number)
        if trial.state == "running":
            return
        asked = self.optuna.trial.Trial(self.study, frozen._trial_id)
        asked.set_user_attr("params", trial.params)
        asked.set_user_attr("seconds", trial.seconds)
        if trial.why:
            asked.set_user_attr("why", trial.why)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a value that was reported before
            for step, value in enumerate(trial.measured, start=1):
                if step not in frozen.intermediate_values:
                    asked.report(value, step)
        states = self.optuna.trial.TrialState
        state = {"complete": states.COMPLETE, "pruned": states.PRUNED, "failed": states.FAIL}[trial.state]
        self.study.tell(asked, trial.value if trial.state == "complete" else None, state=state)

    def release(self) -> None:
        """Give the claim of the current trial back."""
        if self._claim is not None:
            self._claim.release()
        self._claim = None
