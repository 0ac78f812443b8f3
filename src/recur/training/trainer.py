"""Training loop that can be stopped and resumed with bit-identical results.

A checkpoint holds the weights, the states of the optimizer and the schedule, the random state, the position in the
epoch and the hidden state. The batches of an epoch are drawn from (seed, epoch), so that the position is one number.
Evaluation and samples draw no random number from the generator that training uses.
"""

from __future__ import annotations

import math
import threading
import time
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from recur.errors import OptionError, TrainingError
from recur.i18n import Message
from recur.runs import Precision, Run, autocast_in, check_precision, matmul_precision
from recur.tasks.common.contract import Task, TrainingProgress, TrainingStep
from recur.tasks.common.metrics import perplexity
from recur.training import optim
from recur.training.checkpoint import restore_checkpoint, save_checkpoint
from recur.training.distributed import SINGLE_PROCESS, ProcessGroup
from recur.training.evaluate import EVALUATIONS, evaluate_best, evaluate_current, next_evaluation
from recur.training.events import Callback, Event
from recur.training.graphs import CudaGraphs, cuda_graph_blocker
from recur.training.optim import WeightAverage, swap_weights
from recur.utils.types import JsonObject, Metrics

REPORT_SECONDS = 0.5
"""Seconds between progress events."""

MAX_SKIPPED_IN_A_ROW = 20
"""Consecutive bad batches that `on_nan=skip` skips; one more ends training."""


class StepResult(NamedTuple):
    """Loss and gradient norm of one optimizer step."""

    loss: Tensor
    norm: Tensor
    """Norm of the gradient before clipping; infinite if float16 could not hold the gradient."""


class TrainStep:
    """Parts of one training step, in their order: `gradients` of each accumulated batch, `clip`, `update`.

    No part waits for the device.
    """

    def __init__(
        self,
        task: Task[Any, Any, Any, Any],
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        device: torch.device,
        group: ProcessGroup,
        stop: threading.Event,
    ) -> None:
        self.task, self.model, self.optimizer, self.device = task, model, optimizer, device
        self.group, self._stop = group, stop
        self.parameters = list(model.parameters())
        self.precision: Precision = task.options.precision or "float32"
        # float16 has no numbers below 6e-8: its loss is scaled up, so that small gradients do not vanish.
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.precision == "float16")

    def gradients(
        self, batch: Any, state: tuple[Any, ...] | None, moment: TrainingProgress, last: bool = True
    ) -> TrainingStep:
        """Add the gradient of a batch to the parameters; after the `last` batch, that of all ranks."""
        with autocast_in(self.precision, self.device):
            done = self.group.training_step(self.task, self.model, batch, state, moment, last)
        scale = self.group.loss_scale(done, self._stop, self.task.options.gradient_accumulation_steps > 1)
        loss = (
            (done.loss + done.penalty) / (self.task.options.gradient_accumulation_steps / scale)
            if scale
            else 0 * done.loss
        )
        if loss.requires_grad:
            # Waking autograd's thread for the GPU may take longer than the step: run the backward pass in this thread.
            with torch.autograd.set_multithreading_enabled(False), matmul_precision(self.precision, self.device):
                self.scaler.scale(loss).backward()
        whole = self.group.sync_step(self.model, done, self._stop, last)
        return done._replace(loss=whole.loss, predictions=whole.predictions)

    def clip(self, loss: Tensor) -> StepResult:
        """Unscale and clip the accumulated gradient."""
        o = self.task.options
        self.scaler.unscale_(self.optimizer)
        return StepResult(loss.detach(), optim.clip_gradients(self.parameters, o.grad_clip, o.grad_clip_value))

    def update(self, *, skip: bool = False) -> None:
        """Update the weights, unless the batch is skipped, and clear the gradient."""
        if not skip:
            self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)


class StepRecord(NamedTuple):
    """Result of one optimizer step, for reports."""

    loss: Tensor
    norm: Tensor
    predictions: int


class StepRecords:
    """Steps since the last report, and steps since the last evaluation.

    A checkpoint keeps them, so that the evaluation after a resume covers all steps since the evaluation before.
    """

    def __init__(self) -> None:
        self._since_report: list[StepRecord] = []
        self._since_evaluation: list[StepRecord] = []

    def add(self, record: StepRecord) -> None:
        self._since_report.append(record)

    def drop(self) -> None:
        """Remove the last step, which was skipped."""
        self._since_report.pop()

    def take_report(self) -> list[StepRecord]:
        """Return the steps since the last report, and keep them for the next evaluation."""
        seen, self._since_report = self._since_report, []
        self._since_evaluation += seen
        return seen

    def take_evaluation(self) -> list[StepRecord]:
        """Return the reported steps since the last evaluation."""
        seen, self._since_evaluation = self._since_evaluation, []
        return seen

    def to_tensors(self) -> dict[str, Tensor]:
        seen = [*self._since_evaluation, *self._since_report]
        return {
            "losses": torch.stack([record.loss for record in seen]) if seen else torch.empty(0),
            "norms": torch.stack([record.norm for record in seen]) if seen else torch.empty(0),
            "predictions": torch.tensor([record.predictions for record in seen], dtype=torch.int64),
        }

    def from_tensors(self, kept: dict[str, Tensor], device: torch.device) -> None:
        losses, norms, predictions = (kept[name] for name in ("losses", "norms", "predictions"))
        if not (losses.dim() == 1 and losses.shape == norms.shape == predictions.shape):
            raise ValueError("the step records have different lengths")
        self._since_report = []
        self._since_evaluation = list(
            map(StepRecord, losses.to(device).unbind(), norms.to(device).unbind(), map(int, predictions.tolist()))
        )


def summarize_steps(seen: list[StepRecord], clip: float) -> JsonObject:
    """Return the mean loss per prediction, the mean gradient norm, and the fraction of steps that were clipped."""
    losses, norms = torch.stack([record.loss for record in seen]), torch.stack([record.norm for record in seen])
    weights = torch.tensor([float(record.predictions) for record in seen], device=losses.device)
    return {
        "train_loss": float((losses * weights).sum() / weights.sum()),
        "grad_norm": float(norms[norms.isfinite()].mean()) if bool(norms.isfinite().any()) else math.inf,
        "clipped": float((norms > clip).float().mean()) if clip else 0.0,
    }


class Trainer:
    """Training of one run. `train()` continues from the current step until the budget is spent."""

    def __init__(
        self,
        run: Run,
        task: Task[Any, Any, Any, Any],
        data: Any,
        callback: Callback,
        stop: threading.Event | None = None,
        group: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        self.run, self.task, self.options, self.data, self.callback = run, task, task.options, data, callback
        self.stop = stop or threading.Event()
        """Set it from another thread to stop after the current step."""
        self.group = group
        group.reset()
        o = self.options
        self.device = group.device(o.device)
        if o.threads:
            torch.set_num_threads(o.threads)
        self.stream = group.shard(task.batches(data))
        # Equal seeds give equal runs only in this order. The weights are drawn right after the seed is set, by all
        # ranks alike; only then does each rank get its own seed for dropout.
        torch.manual_seed(o.seed)
        self.model = task.new_model(run.vocabs).float().to(self.device)  # whatever the default dtype is
        task.start(self.model, data)
        group.seed(o.seed)
        self.parameters = list(self.model.parameters())
        self.optimizer = optim.make_optimizer(o, self.model, task.places)
        self.average = WeightAverage(self.parameters, o.average) if o.average else None
        self.schedule = optim.Schedule(o.schedule, o.warmup_steps)
        self.stepper = TrainStep(task, self.model, self.optimizer, self.device, group, self.stop)
        check_precision(self.stepper.precision, self.device)
        blocker = cuda_graph_blocker(self.stepper, o, data)
        if blocker and o.graph == "on":
            raise OptionError(f"--graph on: {blocker}")
        self.graphs = None if blocker or o.graph == "off" else CudaGraphs(self.stepper, self._set_rate)
        self.step = self.epoch = self.index = self.predictions = self.skipped = 0
        self.seconds = self.measuring = self.last_measuring = 0.0
        self.bad_in_a_row = 0
        self.best, self.since_best = math.inf, 0
        self.best_metrics: Metrics = {}
        self.next_measure = self._evaluate_every()
        self.measured_at = 0
        """Step of the last evaluation; 0 before the first one."""
        self.thin = 1
        """While training, one in `thin` validation examples is evaluated."""
        self.state: tuple[Any, ...] | None = None
        self.backend = ""
        self.records = StepRecords()

    # Budget -----------------------------------------------------------------------------------------------

    @property
    def epochs(self) -> float:
        return self.epoch + self.index / len(self.stream)

    @property
    def progress(self) -> float:
        """Fraction of the budget that is spent, 0 … 1."""
        o, spent = self.options, [0.0]
        if o.epochs is not None:
            spent.append(self.epochs / o.epochs)
        if o.steps is not None:
            spent.append(self.step / o.steps)
        if o.minutes is not None:
            spent.append((self.seconds + self.measuring) / 60 / o.minutes)
        return max(spent)

    @property
    def stopped(self) -> bool:
        return self.group.should_stop(self.stop) and self.progress < 1

    def _evaluate_every(self) -> float:
        """Return the interval of evaluations: in epochs if the options set it, else as a fraction of the budget."""
        return self.options.eval_every or 1 / EVALUATIONS

    def extend(self, epochs: float | None, steps: int | None, minutes: float | None) -> dict[str, Any]:
        """Replace the budget by what is spent plus the arguments; return the new budget."""
        budget = {
            "epochs": epochs and self.epochs + epochs,
            "steps": steps and self.step + steps,
            "minutes": minutes and (self.seconds + self.measuring) / 60 + minutes,
        }
        self.options = self.task.options = self.options.changed(**budget)
        self.plan_evaluations()
        return budget

    def plan_evaluations(self) -> None:
        """Spread the evaluations over the rest of the budget."""
        if not self.options.eval_every:
            self.next_measure = self.progress + self._evaluate_every()

    def _evaluation_due(self) -> bool:
        done = self.epochs if self.options.eval_every else self.progress
        return done >= self.next_measure - 1e-9

    def _finished(self) -> bool:
        patience = self.options.patience
        done = self.progress >= 1 or bool(patience and self.since_best >= patience)
        return done or self.group.should_stop(self.stop)

    # Loop -------------------------------------------------------------------------------------------------

    def train(self) -> None:
        """Train until the budget is spent, patience ends or `stop` is set, then evaluate or save a checkpoint."""
        self.model.train()
        last_report, last_checkpoint = time.monotonic(), self.seconds + self.measuring
        try:
            while not self._finished():
                before = time.monotonic()
                for batch in self.stream.batches(self.epoch, skip=self.index):
                    self.train_on(batch)
                    reporting = time.monotonic() - last_report > REPORT_SECONDS
                    if reporting or self._evaluation_due():
                        self._synchronize()
                    self.seconds += self.group.add_seconds(time.monotonic() - before)
                    if reporting:
                        self._report()
                        last_report = time.monotonic()
                    if self.group.size > 1 and self.index % self.options.gradient_accumulation_steps:
                        # Partly accumulated gradients differ between ranks: no checkpoint, evaluation or stop here.
                        before = time.monotonic()
                        continue
                    if self._evaluation_due():
                        self._evaluate()
                        last_checkpoint = self.seconds + self.measuring
                    elif self.seconds + self.measuring - last_checkpoint > self.options.checkpoint_every:
                        self.checkpoint()
                        last_checkpoint = self.seconds + self.measuring
                    if self._finished():
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
                self._evaluate()
            if self.thin > 1:
                evaluate_best(self)

    def _synchronize(self) -> None:
        """Wait for the GPU, so that its time is counted with the steps and not with what follows them."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def train_on(self, batch: Any) -> None:
        """Run the forward and backward pass of one batch and, every `accumulate` batches, an optimizer step."""
        o = self.options
        optim.unfreeze_groups(self.optimizer, self.progress)
        moment, last = (
            TrainingProgress(self.step, self.epoch, self.progress),
            (self.index + 1) % o.gradient_accumulation_steps == 0,
        )
        rate = o.lr * self.schedule(self.step, self.epoch, self.progress)
        replayed = self.graphs.take(batch, self.state, moment, rate) if self.graphs is not None else None
        step = self.stepper.gradients(batch, self.state, moment, last) if replayed is None else replayed[0]
        self.backend = step.backend or self.backend
        self.state = step.state
        self.index += 1
        self.predictions += step.predictions
        if self.index % o.gradient_accumulation_steps:
            return
        if replayed is None:
            updated = self._update(step.loss, rate * step.rate, step.predictions)
        else:
            self.records.add(StepRecord(*replayed[1], step.predictions))
            updated = True
        if updated and self.average is not None:
            self.average.update(self.step)
        self.step += 1

    def _update(self, loss: Tensor, rate: float, predictions: int) -> bool:
        """Update the weights by the accumulated gradient; return False if the batch was skipped."""
        result = self.stepper.clip(loss)
        self.records.add(StepRecord(*result, predictions))
        finite = True
        if self.device.type == "cpu" or self.options.on_nan == "skip":
            finite = self._check_finite(*result)  # on a GPU this waits; there, progress reports check instead
        self._set_rate(rate)
        self.stepper.update(skip=not finite)
        return finite

    def _set_rate(self, rate: float) -> None:
        optim.set_learning_rate(self.optimizer, rate)

    def _check_finite(self, loss: Tensor, norm: Tensor) -> bool:
        """Return True if the gradient is finite and the loss is below the task's divergence threshold.

        Return False if the batch is to be skipped (`on_nan=skip`); raise TrainingError if training has diverged.
        """
        threshold = self.task.divergence_threshold(self.run.vocabs)
        # An infinite gradient of float16 is no divergence: the scaler skips the step and lowers the scale.
        scaled = self.stepper.scaler.is_enabled()
        if (scaled or bool(torch.isfinite(norm))) and float(loss) < threshold:
            self.bad_in_a_row = 0
            return True
        self.bad_in_a_row += 1
        if self.options.on_nan == "skip" and self.bad_in_a_row <= MAX_SKIPPED_IN_A_ROW:
            self.skipped += 1
            self.records.drop()
            self.state = None
            return False
        diverged = not float(loss) < threshold
        what = (
            Message("the loss is {loss}", loss=f"{float(loss):.3g}")
            if diverged
            else f"the gradient norm is {float(norm):.3g}"
        )
        clip, rate = self.options.grad_clip / 4 or 1, self.options.lr / 4
        advice = f"clip the gradient (--grad-clip {clip:g}) or lower the learning rate (--lr {rate:g})"
        if self.options.on_nan == "stop":
            advice += "; --on-nan skip skips bad batches"
        self.run.log({"step": self.step, "diverged": what})
        saved = self.best_metrics or math.isfinite(self.best)
        kept = (
            Message("The best weights so far are kept in {path}", path=self.run.path)
            if saved
            else "No weights were saved yet"
        )
        raise TrainingError(
            Message(
                "training diverged at step {step}: {what}. {kept}; try to {advice}",
                step=self.step,
                what=what,
                kept=kept,
                advice=advice,
            )
        )

    # Reports and evaluations ------------------------------------------------------------------------------

    def _report(self) -> None:
        """Send a progress event of the steps since the last one."""
        entry = self._entry(self.records.take_report())
        if "train_loss" in entry and self.group.is_main:
            self.run.progress.add(entry)
        self.callback(Event("progress", entry))

    def _entry(self, seen: list[StepRecord]) -> JsonObject:
        entry: JsonObject = {"step": self.step, "epoch": self.epoch, "predictions": self.predictions}
        entry |= {"seconds": round(self.seconds, 3), "progress": min(self.progress, 1.0), "skipped": self.skipped}
        entry["predictions_per_second"] = self.predictions / self.seconds if self.seconds else 0.0
        if seen:
            if self.device.type != "cpu":
                self._check_finite(seen[-1].loss, seen[-1].norm)
            entry |= summarize_steps(seen, self.options.grad_clip)
            if self.task.likelihood:
                entry["train_perplexity"] = perplexity(entry["train_loss"])
            entry["lr"] = float(self.optimizer.param_groups[-1]["lr"])
        return entry

    def _evaluate(self) -> None:
        """Evaluate on the validation set, keep the best weights, and save a checkpoint."""
        begun = time.monotonic()
        self._report()
        entry = self._entry(self.records.take_evaluation())
        # The averaged weights are evaluated and saved; the trained weights are put back before anything else reads
        # them, so that the checkpoint below holds the weights that training continues from.
        averages = self._averages()
        swap_weights(averages)
        score, metrics, summary, sample, self.thin = self.group.from_rank0(lambda: evaluate_current(self, begun))
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
            self.next_measure, self.epochs if self.options.eval_every else self.progress, self._evaluate_every()
        )
        self.run.log({**entry, **metrics})
        if sample:
            self.run.log({"step": self.step, "text": sample}, "samples.jsonl")
        self.measured_at = self.step
        self.callback(Event("measured", {**entry, **metrics, "summary": summary, "sample": sample}))
        self.last_measuring = self.group.from_rank0(lambda: time.monotonic() - begun)
        self.measuring += self.last_measuring
        self.checkpoint()

    def _averages(self) -> dict[Tensor, Tensor]:
        """Return the averages that are evaluated and saved in place of the weights; empty if there are none."""
        if self.average is not None:
            return self.average.pairs()
        return optim.asgd_averages(self.optimizer) if self.schedule.triggered else {}

    def summary(self) -> JsonObject:
        """Return the results of the training, as `recur train --json` prints them."""
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
            "precision": self.stepper.precision,
            "graph": self.graphs is not None,
            "threads": torch.get_num_threads(),
            "ranks": self.group.size,
            "skipped": self.skipped,
        }

    def checkpoint(self) -> None:
        """Save a checkpoint; after the first step, its time counts as evaluation time, within a budget of minutes."""
        begun = time.monotonic()
        save_checkpoint(self)
        if self.step:
            self.measuring += self.group.from_rank0(lambda: time.monotonic() - begun)

    def restore(self) -> list[Event]:
        """Restore the newest intact checkpoint; return notes on newer ones, and warnings of what is lost."""
        return restore_checkpoint(self)
