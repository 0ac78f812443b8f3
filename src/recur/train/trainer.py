"""The training loop, written so that stopping and going on leaves no trace.

A checkpoint holds the weights, the optimiser's and the schedule's state, the random state, the place in the epoch and
the hidden state. An epoch's batches are drawn from (seed, epoch), so the place is a number. What is measured or sampled
on the way uses no random number of training's.
"""

from __future__ import annotations

import math
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from recur.errors import TrainingError
from recur.run import Run, pick_device
from recur.tasks.contract import Moment, Task
from recur.tasks.scores import perplexity
from recur.train import optimise
from recur.train.checkpoint import restore_checkpoint, save_checkpoint
from recur.train.events import Callback, Event
from recur.train.measuring import MEASUREMENTS, following, measure_best, validate
from recur.train.records import Records, StepRecord, summed_up
from recur.typedefs import JsonObject, Metrics

REPORT = 0.5
"""Seconds between reports of progress."""

SKIP_AT_MOST = 20
"""Bad batches in a row that `on_nan=skip` passes over."""


class Trainer:
    """One run being trained. `train()` goes on from wherever it is until the budget is spent."""

    def __init__(
        self,
        run: Run,
        task: Task[Any, Any, Any, Any],
        data: Any,
        callback: Callback,
        stop: threading.Event | None = None,
    ) -> None:
        self.run, self.task, self.options, self.data, self.callback = run, task, task.options, data, callback
        self.stop = stop or threading.Event()
        """Set from outside to stop after the step in progress."""
        o = self.options
        self.device = pick_device(o.device)
        if o.threads:
            torch.set_num_threads(o.threads)
        self.stream = task.batches(data)
        torch.manual_seed(o.seed)
        self.model = task.new_model(run.vocabs).to(self.device)
        task.start(self.model, data)
        self.parameters = list(self.model.parameters())
        self.optimizer = optimise.make_optimizer(o, self.model, task.places)
        self.schedule = optimise.Schedule(o.schedule, o.warmup)
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
        return self.stop.is_set() and self.progress < 1

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
        return self.stop.is_set() or self.progress >= 1 or bool(patience and self.since_best >= patience)

    # The loop ---------------------------------------------------------------------------------------------

    def train(self) -> None:
        self.model.train()
        last_checkpoint = last_report = time.monotonic()
        try:
            while not self._over():
                before = time.monotonic()
                for batch in self.stream.batches(self.epoch, skip=self.index):
                    self._train_on(batch)
                    now = time.monotonic()
                    self.seconds += now - before
                    if now - last_report > REPORT:
                        self._report()
                        last_report = time.monotonic()
                    if self._measure_due():
                        self._measure()
                        last_checkpoint = time.monotonic()
                    elif now - last_checkpoint > self.options.checkpoint:
                        self.checkpoint()
                        last_checkpoint = time.monotonic()
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

    def _train_on(self, batch: Any) -> None:
        """One batch: forward, backward and, every `accumulate` batches, a step."""
        o = self.options
        optimise.open_groups(self.optimizer, self.progress)
        with self._precision():
            done = self.task.training_step(self.model, batch, self.state, Moment(self.step, self.epoch, self.progress))
        self.backend = done.backend
        ((done.loss + done.penalty) / o.accumulate).backward()
        self.state = done.state
        self.index += 1
        self.predictions += done.predictions
        if self.index % o.accumulate:
            return
        loss, norm = done.loss.detach(), optimise.clip_gradients(self.parameters, o.clip, o.clip_value)
        self.records.add(StepRecord(loss, norm, done.predictions))
        usable = True
        if self.device.type == "cpu" or o.on_nan == "skip":
            usable = self._usable(loss, norm)  # on a GPU this waits for it: there, when progress is reported
        optimise.set_rates(self.optimizer, o.rate * self.schedule(self.step, self.epoch, self.progress) * done.rate)
        if usable:
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1

    def _precision(self) -> AbstractContextManager[object]:
        if self.options.precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, getattr(torch, self.options.precision))

    def _usable(self, loss: Tensor, norm: Tensor) -> bool:
        """Whether a step may be taken; a batch that must not be is passed over, or ends training."""
        threshold = self.task.divergence_threshold(self.run.vocabs)
        if bool(torch.isfinite(norm)) and float(loss) < threshold:
            self.bad_in_a_row = 0
            return True
        self.bad_in_a_row += 1
        if self.options.on_nan == "skip" and self.bad_in_a_row <= SKIP_AT_MOST:
            self.skipped += 1
            self.records.drop()
            self.state = None
            return False
        diverged = not float(loss) < threshold
        what = f"the loss is {float(loss):.3g}" if diverged else f"the gradient's norm is {float(norm):.3g}"
        clip, rate = self.options.clip / 4 or 1, self.options.rate / 4
        advice = f"clip the gradient (--clip {clip:g}) or lower the rate (--rate {rate:g})"
        if self.options.on_nan == "stop":
            advice += "; --on-nan skip passes over bad batches"
        self.run.log({"step": self.step, "diverged": what})
        raise TrainingError(
            f"training diverged at step {self.step}: {what}. The best weights so far are kept in {self.run.path}; "
            f"try to {advice}"
        )

    # Reports and measurements -----------------------------------------------------------------------------

    def _report(self) -> None:
        """What happened since the last report; the measurement that follows an interval sums up all of it."""
        self.callback(Event("progress", self._entry(self.records.take_report())))

    def _entry(self, seen: list[StepRecord]) -> JsonObject:
        entry: JsonObject = {"step": self.step, "epoch": self.epoch, "predictions": self.predictions}
        entry |= {"seconds": round(self.seconds, 3), "progress": min(self.progress, 1.0), "skipped": self.skipped}
        entry["predictions_per_second"] = self.predictions / self.seconds if self.seconds else 0.0
        if seen:
            if self.device.type != "cpu":
                self._usable(seen[-1].loss, seen[-1].norm)
            entry |= summed_up(seen, self.options.clip)
            if self.task.likelihood:
                entry["train_perplexity"] = perplexity(entry["train_loss"])
            entry["rate"] = self.optimizer.param_groups[-1]["lr"]
        return entry

    def _measure(self) -> None:
        begun = time.monotonic()
        self._report()
        entry = self._entry(self.records.take_measure())
        averaged = self.options.optimizer == "asgd" and self.schedule.triggered
        if averaged:
            optimise.swap_averages(self.optimizer)
        self.model.eval()
        with torch.no_grad():
            score, metrics, summary = validate(self, begun)
            sample = self.task.sample(self.model, self.data)
        self.model.train()
        kept = score < self.best or self.options.keep == "last"
        self.since_best = 0 if score < self.best else self.since_best + 1
        self.best = min(self.best, score)
        if kept:
            self.best_metrics = metrics
            self.run.save_weights(self.model, step=self.step, **metrics)
        if averaged:
            optimise.swap_averages(self.optimizer)
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
        self.last_measuring = time.monotonic() - begun
        self.measuring += self.last_measuring
        self.checkpoint()

    def summary(self) -> JsonObject:
        """What it came to."""
        return {
            "run": str(self.run.path),
            "task": self.task.name,
            **self.best_metrics,
            "steps": self.step,
            "epochs": self.epochs,
            "seconds": self.seconds,
            "measuring_seconds": self.measuring,
            "last_measuring_seconds": self.last_measuring,
            "predictions_per_second": self.predictions / self.seconds if self.seconds else 0.0,
            "unit": self.task.unit,
            "parameters": sum(p.numel() for p in self.parameters),
            "architecture": self.task.architecture,
            "backend": self.backend,
            "device": str(self.device),
            "threads": torch.get_num_threads(),
            "skipped": self.skipped,
        }

    def checkpoint(self) -> None:
        save_checkpoint(self)

    def restore(self) -> list[str]:
        """Go back to the newest whole checkpoint; what was wrong with newer ones is returned."""
        return restore_checkpoint(self)
