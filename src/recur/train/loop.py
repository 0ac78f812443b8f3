"""The training loop, written so that stopping and going on leaves no trace.

What is trained is the run's task (recur.train.tasks). A checkpoint holds the weights, the optimiser's and the
schedule's state, the random state, the place in the epoch and the hidden state. An epoch's batches are drawn from
(seed, epoch), so the place is a number. What is measured or sampled on the way uses no random number of training's.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from recur.errors import TrainingError
from recur.train.machine import each_tensor, pick_device, pick_threads
from recur.train.measure import perplexity
from recur.train.optimise import Schedule, averages, clip_gradients, make_optimizer, start_averaging
from recur.train.run import Run
from recur.train.tasks import Moment

Listener = Callable[[dict[str, Any]], object]

REPORT = 0.5
"""Seconds between reports of progress."""

SKIP_AT_MOST = 20
"""Bad batches in a row that `on_nan=skip` passes over."""

KEPT = (
    *("epoch", "index", "tokens", "skipped", "seconds", "best", "best_metrics", "since_best", "next_measure"),
    "threads",
)
"""Numbers that a checkpoint keeps as they are."""


class Trainer:
    """One run being trained. `train()` goes on from wherever it is until the budget is spent."""

    def __init__(self, run: Run, data: Any, listener: Listener | None = None) -> None:
        self.run, self.task, self.config, self.data = run, run.task, run.config, data
        self.listener: Listener = listener or (lambda event: None)
        self.stopping = False
        """Set from outside to stop after the step in progress."""
        config = self.config
        self.device = pick_device(config.device)
        self.stream = self.task.batches(data)
        self.threads = config.threads
        if not self.threads and self.device.type == "cpu":
            self.threads = pick_threads(self._rehearsal())
        self._use_threads()
        torch.manual_seed(config.seed)
        self.model = run.new_model().to(self.device)
        self.parameters = list(self.model.parameters())
        self.optimizer = make_optimizer(config, self.parameters)
        self.schedule = Schedule(config.schedule, config.warmup)
        self.step = self.epoch = self.index = self.tokens = self.skipped = 0
        self.seconds = 0.0
        self.bad_in_a_row = 0
        self.best, self.since_best = math.inf, 0
        self.best_metrics: dict[str, float] = {}
        self.next_measure = self._measure_every()
        self.state: Any = None
        self.backend = ""
        self._since_report: list[tuple[Tensor, Tensor, int]] = []
        self._since_measure: list[tuple[Tensor, Tensor, int]] = []

    def _rehearsal(self) -> Callable[[], object]:
        """A step of training on the first batch, of weights that are thrown away."""
        model, batch = self.run.new_model(), next(iter(self.stream.batches(0)))
        return lambda: self.task.learn(model, batch, None, Moment(0, 0, 0.0)).loss.backward()

    def _use_threads(self) -> None:
        if self.threads:
            torch.set_num_threads(self.threads)

    # Budget -----------------------------------------------------------------------------------------------

    @property
    def progress(self) -> float:
        """How much of the budget is spent, 0 … 1."""
        config, shares = self.config, []
        if config.epochs is not None:
            shares.append((self.epoch + self.index / len(self.stream)) / config.epochs)
        if config.steps is not None:
            shares.append(self.step / config.steps)
        minutes = config.minutes
        if minutes is None and not shares:
            minutes = 1.0
        if minutes is not None:
            shares.append(self.seconds / 60 / minutes)
        return max(shares)

    def _measure_every(self) -> float:
        """In epochs."""
        if self.config.measure:
            return self.config.measure
        if self.config.epochs is not None:
            return min(1.0, self.config.epochs / 10)
        if self.config.steps is not None:
            return min(1.0, self.config.steps / len(self.stream) / 10)
        return 1.0

    # The loop ---------------------------------------------------------------------------------------------

    def train(self) -> None:
        self.model.train()
        last_checkpoint = last_report = time.monotonic()
        begun, before = time.monotonic(), self.seconds
        try:
            while not self.stopping and self.progress < 1 and not self._out_of_patience():
                for batch in self.stream.batches(self.epoch, skip=self.index):
                    self._one(batch)
                    now = time.monotonic()
                    self.seconds = before + now - begun
                    if now - last_report > REPORT:
                        self._report()
                        last_report = time.monotonic()
                    if self._due():
                        aside = time.monotonic()
                        self._measure()
                        begun += time.monotonic() - aside  # measuring is not training
                        last_checkpoint = time.monotonic()
                    elif now - last_checkpoint > self.config.checkpoint:
                        self.checkpoint()
                        last_checkpoint = time.monotonic()
                    if self.stopping or self.progress >= 1 or self._out_of_patience():
                        break
                else:
                    self.epoch, self.index, self.state = self.epoch + 1, 0, None
        except TrainingError:
            self.listener({"event": "exploded", "step": self.step})
            raise
        if self.stopping:
            self.checkpoint()
        elif not self.run.metrics() or self.run.metrics()[-1].get("step") != self.step:
            self._measure()

    def _one(self, batch: Any) -> None:
        """One batch: forward, backward and, every `accumulate` batches, a step."""
        learned = self.task.learn(self.model, batch, self.state, Moment(self.step, self.epoch, self.progress))
        seen = learned.loss.detach()
        self.backend = learned.backend
        ((learned.loss + learned.penalty) / self.config.accumulate).backward()
        self.state = learned.state
        self.index += 1
        self.tokens += learned.predictions
        if self.index % self.config.accumulate:
            return
        norm = clip_gradients(self.parameters, self.config.clip, self.config.clip_value)
        self._since_report.append((seen, norm, learned.predictions))
        sound = True
        if self.device.type == "cpu" or self.config.on_nan == "skip":
            sound = self._sound(seen, norm)  # on a GPU this waits for it: there, when progress is reported
        rate = self.config.rate * self.schedule(self.step, self.epoch, self.progress) * learned.rate
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        if sound:
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1

    def _sound(self, loss: Tensor, norm: Tensor) -> bool:
        """Whether a step may be taken; a batch that must not be is passed over, or ends training."""
        limit = self.task.limit(self.run.vocabs)
        if bool(torch.isfinite(norm)) and float(loss) < limit:
            self.bad_in_a_row = 0
            return True
        self.bad_in_a_row += 1
        if self.config.on_nan == "skip" and self.bad_in_a_row <= SKIP_AT_MOST:
            self.skipped += 1
            self._since_report.pop()
            self.state = None
            return False
        what = (
            f"the loss is {float(loss):.3g}" if not float(loss) < limit else f"the gradient's norm is {float(norm):.3g}"
        )
        clip, rate = self.config.clip / 4 or 1, self.config.rate / 4
        tries = f"clip the gradient (--clip {clip:g}), lower the rate (--rate {rate:g})"
        raise TrainingError(
            f"training came apart at step {self.step}: {what}. The best weights so far are kept in {self.run.path}; "
            f"try to {tries}, or take another cell than {self.config.cell}; --on-nan skip passes over bad batches"
        )

    # Reports and measurements -----------------------------------------------------------------------------

    def _report(self) -> dict[str, Any]:
        """What happened since the last report; the measurement that follows an interval hears of all of it."""
        seen, self._since_report = self._since_report, []
        self._since_measure += seen
        entry = self._entry(seen)
        self.listener(entry)
        return entry

    def _entry(self, seen: list[tuple[Tensor, Tensor, int]]) -> dict[str, Any]:
        entry: dict[str, Any] = {"event": "progress", "step": self.step, "epoch": self.epoch, "tokens": self.tokens}
        entry |= {"seconds": round(self.seconds, 3), "progress": min(self.progress, 1.0), "skipped": self.skipped}
        entry["tokens_per_second"] = self.tokens / self.seconds if self.seconds else 0.0
        if seen:
            losses, norms = torch.stack([s[0] for s in seen]), torch.stack([s[1] for s in seen])
            weights = torch.tensor([float(s[2]) for s in seen], device=losses.device)
            loss = float((losses * weights).sum() / weights.sum())
            if self.device.type != "cpu":
                self._sound(losses[-1], norms[-1])
            entry |= {"train_loss": loss, "grad_norm": float(norms.mean())}
            if self.task.likelihood:
                entry["train_perplexity"] = perplexity(loss)
            entry["clipped"] = float((norms > self.config.clip).float().mean()) if self.config.clip else 0.0
            entry["rate"] = self.optimizer.param_groups[0]["lr"]
        return entry

    def _due(self) -> bool:
        return self.epoch + self.index / len(self.stream) >= self.next_measure - 1e-9

    def _measure(self) -> None:
        self._report()
        seen, self._since_measure = self._since_measure, []
        entry = self._entry(seen)
        swapped = self._swap_averages()
        self.model.eval()
        with torch.no_grad():
            score, metrics, said = self.task.measure(self.model, self.data)
        self.model.train()
        entry |= {"event": "measured", "said": said, **metrics}
        if score < self.best:
            self.best, self.best_metrics, self.since_best = score, metrics, 0
            self.run.save_model(self.model, step=self.step, **metrics)
        else:
            self.since_best += 1
        if swapped:
            self._swap_averages()
        if self.schedule.measured(score) and self.config.optimizer == "asgd":
            start_averaging(self.optimizer)
        elif self.schedule.triggered and self.config.optimizer != "asgd" and self.schedule.factor == 1.0:
            self.schedule.factor = 0.1
        every = self._measure_every()
        while self._due():
            self.next_measure += every
        self.run.log({key: value for key, value in entry.items() if key not in ("event", "said")})
        self.listener(entry)
        self.checkpoint()

    def _swap_averages(self) -> bool:
        """Exchange the weights with their averages, if there are any yet."""
        if not (self.config.optimizer == "asgd" and self.schedule.triggered):
            return False
        with torch.no_grad():
            for p, average in averages(self.optimizer).items():
                kept = p.clone()
                p.copy_(average)
                average.copy_(kept)
        return True

    def _out_of_patience(self) -> bool:
        return bool(self.config.patience) and self.since_best >= self.config.patience

    # Checkpoints ------------------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        state: dict[str, Any] = {
            "step": self.step,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state(),
            "random": torch.get_rng_state(),
            "hidden": each_tensor(self.state, lambda part: part),
            "grads": [p.grad for p in self.parameters],  # between the steps of an accumulation
        }
        state |= {name: getattr(self, name) for name in KEPT}
        if self.device.type == "cuda":
            state["random_cuda"] = torch.cuda.get_rng_state()
        self.run.save_checkpoint(state)

    def restore(self) -> list[str]:
        """Go back to the newest whole checkpoint; what was wrong with newer ones is returned."""
        state, complaints = self.run.load_checkpoint()
        self.run.fit(self.model, state["model"], f"{self.run.path}/resume")
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load(state["schedule"])
        torch.set_rng_state(state["random"])
        if "random_cuda" in state and self.device.type == "cuda":
            torch.cuda.set_rng_state(state["random_cuda"])
        for name in ("step", *KEPT):
            if name in state:  # what an older version did not keep yet starts anew
                setattr(self, name, state[name])
        self._use_threads()  # sums of another number of threads round otherwise
        self.state = each_tensor(state["hidden"], lambda part: part.to(self.device))
        for p, grad in zip(self.parameters, state["grads"], strict=True):
            p.grad = None if grad is None else grad.to(self.device)
        self.run.forget_metrics_after(self.step)
        return complaints
