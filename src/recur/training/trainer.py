"""The training loop, written so that stopping and going on leaves no trace.

A checkpoint holds the weights, the optimiser's and the schedule's state, the random state, the place in the epoch and
the hidden state. An epoch's batches are drawn from (seed, epoch), so the place is a number. What is measured or sampled
on the way uses no random number of training's.
"""

from __future__ import annotations

import math
import threading
import time
from typing import Any

import torch
from torch import Tensor

from recur.errors import OptionError, TrainingError
from recur.runs import Run, check_precision
from recur.tasks.common.contract import Task, TrainingProgress
from recur.tasks.common.metrics import perplexity
from recur.training import optimise
from recur.training.averaging import MovingAverage, swap
from recur.training.checkpoint import restore_checkpoint, save_checkpoint
from recur.training.events import Callback, Event
from recur.training.graphs import Graphs, refusal
from recur.training.measuring import MEASUREMENTS, following, measure_best, validated
from recur.training.ranks import ALONE, Ranks
from recur.training.records import Records, StepRecord, summed_up
from recur.training.step import Stepper
from recur.training.summary import summary_of
from recur.training.usable import usable
from recur.utils.types import JsonObject, Metrics

REPORT = 0.5
"""Seconds between reports of progress."""


class Trainer:
    """One run being trained. `train()` goes on from wherever it is until the budget is spent."""

    def __init__(
        self,
        run: Run,
        task: Task[Any, Any, Any, Any],
        data: Any,
        callback: Callback,
        stop: threading.Event | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        self.run, self.task, self.options, self.data, self.callback = run, task, task.options, data, callback
        self.stop = stop or threading.Event()
        """Set from outside to stop after the step in progress."""
        self.ranks = ranks
        ranks.begin()
        o = self.options
        self.device = ranks.device(o.device)
        if o.threads:
            torch.set_num_threads(o.threads)
        self.stream = ranks.shared(task.batches(data))
        torch.manual_seed(o.seed)
        self.model = task.new_model(run.vocabs).to(self.device)
        task.start(self.model, data)
        ranks.seed(o.seed)
        self.parameters = list(self.model.parameters())
        self.optimizer = optimise.make_optimizer(o, self.model, task.places)
        self.average = MovingAverage(self.parameters, o.average) if o.average else None
        self.schedule = optimise.Schedule(o.schedule, o.warmup)
        self.stepper = Stepper(task, self.model, self.optimizer, self.device, ranks, self.stop)
        check_precision(self.stepper.precision, self.device)
        why_not = refusal(self.stepper, o, data)
        if why_not and o.graph == "on":
            raise OptionError(f"--graph on: {why_not}")
        self.graphs = None if why_not or o.graph == "off" else Graphs(self.stepper, self._set_rate)
        """Steps on a GPU, recorded, where they can be."""
        self.step = self.epoch = self.index = self.predictions = self.skipped = 0
        self.seconds = self.measuring = self.last_measuring = 0.0
        self.bad_in_a_row = 0
        self.best, self.since_best = math.inf, 0
        self.best_metrics: Metrics = {}
        self.next_measure = self._measure_every()
        self.measured_at = 0
        """The step of the last measurement; 0 is before all of them."""
        self.thin = 1
        """While training, one in so many of the validation part is measured."""
        self.state: tuple[Any, ...] | None = None
        self.backend = ""
        self.records = Records()

    # Budget -----------------------------------------------------------------------------------------------

    @property
    def epochs(self) -> float:
        return self.epoch + self.index / len(self.stream)

    @property
    def progress(self) -> float:
        """How much of the budget is spent, 0 … 1."""
        o, shares = self.options, [0.0]
        if o.epochs is not None:
            shares.append(self.epochs / o.epochs)
        if o.steps is not None:
            shares.append(self.step / o.steps)
        if o.minutes is not None:
            shares.append((self.seconds + self.measuring) / 60 / o.minutes)
        return max(shares)

    @property
    def stopped(self) -> bool:
        return self.ranks.stopping(self.stop) and self.progress < 1

    def _measure_every(self) -> float:
        """In epochs, if the options say so; else in shares of the budget."""
        return self.options.measure or 1 / MEASUREMENTS

    def extend(self, epochs: float | None, steps: int | None, minutes: float | None) -> dict[str, Any]:
        """So much more, and nothing else: the budget is now this. Measurements are spread anew over what is left."""
        budget = {
            "epochs": epochs and self.epochs + epochs,
            "steps": steps and self.step + steps,
            "minutes": minutes and (self.seconds + self.measuring) / 60 + minutes,
        }
        self.options = self.task.options = self.options.changed(**budget)
        self.plan_measurements()
        return budget

    def plan_measurements(self) -> None:
        """Spread them anew over what is left of a budget."""
        if not self.options.measure:
            self.next_measure = self.progress + self._measure_every()

    def _measure_due(self) -> bool:
        if self.options.measure:
            return self.epochs >= self.next_measure - 1e-9
        return self.progress >= self.next_measure - 1e-9

    def _over(self) -> bool:
        patience = self.options.patience
        return self.ranks.stopping(self.stop) or self.progress >= 1 or bool(patience and self.since_best >= patience)

    # The loop ---------------------------------------------------------------------------------------------

    def train(self) -> None:
        self.model.train()
        last_report, last_checkpoint = time.monotonic(), self.seconds + self.measuring
        try:
            while not self._over():
                before = time.monotonic()
                for batch in self.stream.batches(self.epoch, skip=self.index):
                    self.train_on(batch)
                    reporting = time.monotonic() - last_report > REPORT
                    if reporting or self._measure_due():
                        self._wait()
                    self.seconds += self.ranks.spent(time.monotonic() - before)
                    if reporting:
                        self._report()
                        last_report = time.monotonic()
                    if self.ranks.size > 1 and self.index % self.options.accumulate:
                        before = time.monotonic()  # gradients that are being added up are those of one rank
                        continue
                    if self._measure_due():
                        self._measure()
                        last_checkpoint = self.seconds + self.measuring
                    elif self.seconds + self.measuring - last_checkpoint > self.options.checkpoint:
                        self.checkpoint()
                        last_checkpoint = self.seconds + self.measuring
                    if self._over():
                        break
                    before = time.monotonic()
                else:
                    self.epoch, self.index, self.state = self.epoch + 1, 0, None
        except TrainingError:
            self.callback(Event("diverged", {"step": self.step}))
            raise
        if self.stopped:
            self.checkpoint()
        else:
            if self.measured_at != self.step:
                self._measure()
            if self.thin > 1:
                measure_best(self)

    def _wait(self) -> None:
        """For a GPU to have done what was launched: it is part of the steps' time, not of what comes after them."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def train_on(self, batch: Any) -> None:
        """One batch: forward, backward and, every `accumulate` batches, a step."""
        o = self.options
        optimise.open_groups(self.optimizer, self.progress)
        moment, last = TrainingProgress(self.step, self.epoch, self.progress), (self.index + 1) % o.accumulate == 0
        rate = o.rate * self.schedule(self.step, self.epoch, self.progress)
        taken = self.graphs.take(batch, self.state, moment, rate) if self.graphs is not None else None
        step = self.stepper.gradients(batch, self.state, moment, last) if taken is None else taken[0]
        self.backend = step.backend or self.backend
        self.state = step.state
        self.index += 1
        self.predictions += step.predictions
        if self.index % o.accumulate:
            return
        if taken is None:
            used = self._update(step.loss, rate * step.rate, step.predictions)
        else:
            self.records.add(StepRecord(*taken[1], step.predictions))
            used = True
        if used and self.average is not None:
            self.average.update(self.step)
        self.step += 1

    def _update(self, loss: Tensor, rate: float, predictions: int) -> bool:
        """A step of the optimiser by what was added up, if that is usable."""
        done = self.stepper.clipped(loss)
        self.records.add(StepRecord(*done, predictions))
        used = True
        if self.device.type == "cpu" or self.options.on_nan == "skip":
            used = usable(self, *done)  # on a GPU this waits for it: there, when progress is reported
        self._set_rate(rate)
        self.stepper.update(skip=not used)
        return used

    def _set_rate(self, rate: float) -> None:
        optimise.set_rates(self.optimizer, rate)

    # Reports and measurements -----------------------------------------------------------------------------

    def _report(self) -> None:
        """What happened since the last report; the measurement that follows an interval sums up all of it."""
        entry = self._entry(self.records.take_report())
        if "train_loss" in entry and self.ranks.writes:
            self.run.progress.add(entry)
        self.callback(Event("progress", entry))

    def _entry(self, seen: list[StepRecord]) -> JsonObject:
        entry: JsonObject = {"step": self.step, "epoch": self.epoch, "predictions": self.predictions}
        entry |= {"seconds": round(self.seconds, 3), "progress": min(self.progress, 1.0), "skipped": self.skipped}
        entry["predictions_per_second"] = self.predictions / self.seconds if self.seconds else 0.0
        if seen:
            if self.device.type != "cpu":
                usable(self, seen[-1].loss, seen[-1].norm)
            entry |= summed_up(seen, self.options.clip)
            if self.task.likelihood:
                entry["train_perplexity"] = perplexity(entry["train_loss"])
            entry["rate"] = float(self.optimizer.param_groups[-1]["lr"])
        return entry

    def _measure(self) -> None:
        begun = time.monotonic()
        self._report()
        entry = self._entry(self.records.take_measure())
        averages = self._averages()
        swap(averages)
        score, metrics, summary, sample, self.thin = self.ranks.first(lambda: validated(self, begun))
        entry["measured"] = self.task.measured(self.data) // self.thin
        kept = score < self.best or self.options.keep == "last"
        self.since_best = 0 if score < self.best else self.since_best + 1
        self.best = min(self.best, score)
        if kept:
            self.best_metrics = metrics
            self.run.save_weights(self.model, step=self.step, **metrics)
        swap(averages)
        if self.schedule.measured(score) and self.options.optimizer == "asgd":
            optimise.start_averaging(self.optimizer)
        elif self.schedule.triggered and self.options.optimizer != "asgd" and self.schedule.factor == 1.0:
            self.schedule.factor = 0.1
        self.next_measure = following(
            self.next_measure, self.epochs if self.options.measure else self.progress, self._measure_every()
        )
        self.run.log({**entry, **metrics})
        if sample:
            self.run.log({"step": self.step, "text": sample}, "samples.jsonl")
        self.measured_at = self.step
        self.callback(Event("measured", {**entry, **metrics, "summary": summary, "sample": sample}))
        self.last_measuring = self.ranks.first(lambda: time.monotonic() - begun)
        self.measuring += self.last_measuring
        self.checkpoint()

    def _averages(self) -> dict[Tensor, Tensor]:
        """What is measured and kept in place of the weights, where that is not they themselves."""
        if self.average is not None:
            return self.average.pairs()
        return optimise.averages(self.optimizer) if self.schedule.triggered else {}

    def summary(self) -> JsonObject:
        """What it came to."""
        return summary_of(self)

    def checkpoint(self) -> None:
        """Its time is counted with that of measurements, so that a budget of minutes holds both, once it has begun."""
        begun = time.monotonic()
        save_checkpoint(self)
        if self.step:
            self.measuring += self.ranks.first(lambda: time.monotonic() - begun)

    def restore(self) -> list[str]:
        """Go back to the newest whole checkpoint; what was wrong with newer ones is returned."""
        return restore_checkpoint(self)
