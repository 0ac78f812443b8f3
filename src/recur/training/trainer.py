"""What the steps of training gave, until it is reported and measured.

A checkpoint keeps what was not measured yet, so that after a stop in the middle a measurement still sums up all steps
since the one before.
"""

from __future__ import annotations

import math
import threading
import time
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from recur.errors import OptionError, TrainingError
from recur.runs import Precision, Run, autocast_in, check_precision, matmul_precision
from recur.tasks.contract import Moment, Task, TrainingStep
from recur.tasks.scores import perplexity
from recur.training import optim
from recur.training.checkpoint import restore_checkpoint, save_checkpoint
from recur.training.distributed import SINGLE_PROCESS, ProcessGroup
from recur.training.evaluate import EVALUATIONS, evaluate_best, evaluate_current, next_evaluation
from recur.training.events import Callback, Event
from recur.training.graphs import CudaGraphs, cuda_graph_blocker
from recur.training.optim import WeightAverage, swap_weights
from recur.utils.types import JsonObject, Metrics


class StepRecord(NamedTuple):
    """One step of the optimiser."""

    loss: Tensor
    norm: Tensor
    predictions: int


class Records:
    """The steps since the last report, and those since the last measurement."""

    def __init__(self) -> None:
        self._since_report: list[StepRecord] = []
        self._since_measure: list[StepRecord] = []

    def add(self, record: StepRecord) -> None:
        self._since_report.append(record)

    def drop(self) -> None:
        """The last step was none."""
        self._since_report.pop()

    def take_report(self) -> list[StepRecord]:
        """Those since the last report; the measurement that follows sums them up too."""
        seen, self._since_report = self._since_report, []
        self._since_measure += seen
        return seen

    def take_measure(self) -> list[StepRecord]:
        """Those since the last measurement that were reported."""
        seen, self._since_measure = self._since_measure, []
        return seen

    def to_tensors(self) -> dict[str, Tensor]:
        seen = [*self._since_measure, *self._since_report]
        losses, norms = ([getattr(record, name) for record in seen] for name in ("loss", "norm"))
        return {
            "losses": torch.stack(losses) if seen else torch.empty(0),
            "norms": torch.stack(norms) if seen else torch.empty(0),
            "predictions": torch.tensor([record.predictions for record in seen], dtype=torch.int64),
        }

    def from_tensors(self, kept: dict[str, Tensor], device: torch.device) -> None:
        losses, norms, predictions = (kept[name] for name in ("losses", "norms", "predictions"))
        if not (losses.dim() == 1 and losses.shape == norms.shape == predictions.shape):
            raise ValueError("the records of its steps are of several lengths")
        self._since_report = []
        self._since_measure = list(
            map(StepRecord, losses.to(device).unbind(), norms.to(device).unbind(), map(int, predictions.tolist()))
        )


def summarize_steps(seen: list[StepRecord], clip: float) -> JsonObject:
    """The mean loss of what was predicted, the mean norm of the gradient, and the share of steps it was clipped in."""
    losses, norms = torch.stack([record.loss for record in seen]), torch.stack([record.norm for record in seen])
    weights = torch.tensor([float(record.predictions) for record in seen], device=losses.device)
    return {
        "train_loss": float((losses * weights).sum() / weights.sum()),
        "grad_norm": float(norms[norms.isfinite()].mean()) if bool(norms.isfinite().any()) else math.inf,
        "clipped": float((norms > clip).float().mean()) if clip else 0.0,
    }


class StepResult(NamedTuple):
    """What a step of the optimiser gave."""

    loss: Tensor
    norm: Tensor
    """Of the gradient before it was clipped; infinite where float16 could not hold it."""


class TrainStep:
    """The parts of a step, in their order: `gradients`, of as many batches as are added up; `clipped`; `update`."""

    def __init__(
        self,
        task: Task[Any, Any, Any, Any],
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        device: torch.device,
        ranks: ProcessGroup,
        stop: threading.Event,
    ) -> None:
        self.task, self.model, self.optimizer, self.device = task, model, optimizer, device
        self.ranks, self._stop = ranks, stop
        self.parameters = list(model.parameters())
        self.precision: Precision = task.options.precision or "float32"
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.precision == "float16")
        """Float16 has no numbers below 6e-8, so that its gradients are those of a scaled loss."""

    def gradients(self, batch: Any, state: tuple[Any, ...] | None, moment: Moment, last: bool = True) -> TrainingStep:
        """The loss of a batch, and its gradient added to the parameters'; those of all ranks, at the `last` before the
        optimiser's step."""
        with autocast_in(self.precision, self.device):
            done = self.ranks.training_step(self.task, self.model, batch, state, moment, last)
        scale = self.ranks.scale(done, self._stop, self.task.options.accumulate > 1)
        loss = (done.loss + done.penalty) / (self.task.options.accumulate / scale) if scale else 0 * done.loss
        if loss.requires_grad:
            # To wake a thread for the GPU may take most of a step.
            with torch.autograd.set_multithreading_enabled(False), matmul_precision(self.precision, self.device):
                self.scaler.scale(loss).backward()
        agreed = self.ranks.agree(self.model, done, self._stop, last)
        return done._replace(loss=agreed.loss, predictions=agreed.predictions)

    def clipped(self, loss: Tensor) -> StepResult:
        """Clip what was added up, at its own scale."""
        o = self.task.options
        self.scaler.unscale_(self.optimizer)
        return StepResult(loss.detach(), optim.clip_gradients(self.parameters, o.clip, o.clip_value))

    def update(self, *, skip: bool = False) -> None:
        """Move the weights, unless the batch is passed over, and forget the gradient."""
        if not skip:
            self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)


MAX_SKIPPED_IN_A_ROW = 20
"""Bad batches in a row that `on_nan=skip` passes over."""


def check_divergence(trainer: Trainer, loss: Tensor, norm: Tensor) -> bool:
    """Whether a step may be taken; a batch that must not be is passed over, or ends training."""
    threshold = trainer.task.divergence_threshold(trainer.run.vocabs)
    # What float16 cannot hold, its scaler passes over, and lowers the scale.
    scaled = trainer.stepper.scaler.is_enabled()
    if (scaled or bool(torch.isfinite(norm))) and float(loss) < threshold:
        trainer.bad_in_a_row = 0
        return True
    trainer.bad_in_a_row += 1
    if trainer.options.on_nan == "skip" and trainer.bad_in_a_row <= MAX_SKIPPED_IN_A_ROW:
        trainer.skipped += 1
        trainer.records.drop()
        trainer.state = None
        return False
    diverged = not float(loss) < threshold
    what = f"the loss is {float(loss):.3g}" if diverged else f"the gradient's norm is {float(norm):.3g}"
    clip, rate = trainer.options.clip / 4 or 1, trainer.options.rate / 4
    advice = f"clip the gradient (--clip {clip:g}) or lower the rate (--rate {rate:g})"
    if trainer.options.on_nan == "stop":
        advice += "; --on-nan skip passes over bad batches"
    trainer.run.log({"step": trainer.step, "diverged": what})
    saved = trainer.best_metrics or math.isfinite(trainer.best)
    kept = f"The best weights so far are kept in {trainer.run.path}" if saved else "No weights were saved yet"
    raise TrainingError(f"training diverged at step {trainer.step}: {what}. {kept}; try to {advice}")


def summarize_training(trainer: Trainer) -> JsonObject:
    return {
        "run": str(trainer.run.path),
        "task": trainer.task.name,
        **trainer.best_metrics,
        "steps": trainer.step,
        "epochs": trainer.epochs,
        "seconds": trainer.seconds,
        "measuring_seconds": trainer.measuring,
        "last_measuring_seconds": trainer.last_measuring,
        "predictions_per_second": trainer.predictions / trainer.seconds if trainer.seconds else 0.0,
        "unit": trainer.task.unit,
        "parameters": sum(p.numel() for p in trainer.parameters),
        "architecture": trainer.task.architecture,
        "backend": trainer.backend,
        "device": str(trainer.device),
        "precision": trainer.stepper.precision,
        "graph": trainer.graphs is not None,
        "threads": torch.get_num_threads(),
        "ranks": trainer.ranks.size,
        "skipped": trainer.skipped,
    }


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
        ranks: ProcessGroup = SINGLE_PROCESS,
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
        self.optimizer = optim.make_optimizer(o, self.model, task.places)
        self.average = WeightAverage(self.parameters, o.average) if o.average else None
        self.schedule = optim.Schedule(o.schedule, o.warmup)
        self.stepper = TrainStep(task, self.model, self.optimizer, self.device, ranks, self.stop)
        check_precision(self.stepper.precision, self.device)
        why_not = cuda_graph_blocker(self.stepper, o, data)
        if why_not and o.graph == "on":
            raise OptionError(f"--graph on: {why_not}")
        self.graphs = None if why_not or o.graph == "off" else CudaGraphs(self.stepper, self._set_rate)
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
        return self.options.measure or 1 / EVALUATIONS

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
                evaluate_best(self)

    def _wait(self) -> None:
        """For a GPU to have done what was launched: it is part of the steps' time, not of what comes after them."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def train_on(self, batch: Any) -> None:
        """One batch: forward, backward and, every `accumulate` batches, a step."""
        o = self.options
        optim.unfreeze_groups(self.optimizer, self.progress)
        moment, last = Moment(self.step, self.epoch, self.progress), (self.index + 1) % o.accumulate == 0
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
            used = check_divergence(self, *done)  # on a GPU this waits for it: there, when progress is reported
        self._set_rate(rate)
        self.stepper.update(skip=not used)
        return used

    def _set_rate(self, rate: float) -> None:
        optim.set_learning_rate(self.optimizer, rate)

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
                check_divergence(self, seen[-1].loss, seen[-1].norm)
            entry |= summarize_steps(seen, self.options.clip)
            if self.task.likelihood:
                entry["train_perplexity"] = perplexity(entry["train_loss"])
            entry["rate"] = float(self.optimizer.param_groups[-1]["lr"])
        return entry

    def _measure(self) -> None:
        begun = time.monotonic()
        self._report()
        entry = self._entry(self.records.take_measure())
        averages = self._averages()
        swap_weights(averages)
        score, metrics, summary, sample, self.thin = self.ranks.first(lambda: evaluate_current(self, begun))
        entry["measured"] = self.task.measured(self.data) // self.thin
        kept = score < self.best or self.options.keep == "last"
        self.since_best = 0 if score < self.best else self.since_best + 1
        self.best = min(self.best, score)
        if kept:
            self.best_metrics = metrics
            self.run.save_weights(self.model, step=self.step, **metrics)
        swap_weights(averages)
        if self.schedule.measured(score) and self.options.optimizer == "asgd":
            optim.start_averaging(self.optimizer)
        elif self.schedule.triggered and self.options.optimizer != "asgd" and self.schedule.factor == 1.0:
            self.schedule.factor = 0.1
        self.next_measure = next_evaluation(
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
        return optim.asgd_averages(self.optimizer) if self.schedule.triggered else {}

    def summary(self) -> JsonObject:
        """What it came to."""
        return summarize_training(self)

    def checkpoint(self) -> None:
        """Its time is counted with that of measurements, so that a budget of minutes holds both, once it has begun."""
        begun = time.monotonic()
        save_checkpoint(self)
        if self.step:
            self.measuring += self.ranks.first(lambda: time.monotonic() - begun)

    def restore(self) -> list[str]:
        """Go back to the newest whole checkpoint; what was wrong with newer ones is returned."""
        return restore_checkpoint(self)
