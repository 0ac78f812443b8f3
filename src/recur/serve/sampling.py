"""Sampling for many rows at once, and the events that rows get from the scores after their inputs.

Each row has its own sampling options and its own random numbers: what a row samples depends on its seed and on how many
tokens it has sampled, not on the other rows of the batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from recur.decoding.sampling import sampling_probabilities
from recur.errors import RunError
from recur.serve.rows import (
    BatchEvents,
    BatchRow,
    GenerationRow,
    PromptLogprobs,
    RowEnd,
    StepBatch,
    StepBatchOutput,
    StepOutput,
    StepRow,
    TextDelta,
    TokenLogprob,
    run_isolated,
)


class EngineCounters:
    """Counters of the engine since the start. Readers in other threads may see a batch counted in part."""

    def __init__(self) -> None:
        self.read: dict[str, int] = {}
        self.written: dict[str, int] = {}
        self.batches = self.rows = 0
        self.seconds = 0.0
        self.sizes = dict.fromkeys((1, 4, 16, 64, 256, 1024, 4096, 16384), 0)
        """Number of batches with at most so many rows."""

    def batch(self, rows: int, seconds: float) -> None:
        self.batches += 1
        self.rows += rows
        self.seconds += seconds
        for size in self.sizes:
            if rows <= size:
                self.sizes[size] += 1


def sample_tokens(rows: Sequence[BatchRow | StepBatch], logits: Tensor) -> list[int]:
    """Return one token id per row, sampled from logits (n, K)."""
    drawing = [k for k, row in enumerate(rows) if row.random is not None]
    if not drawing:
        found: list[int] = logits.argmax(-1).tolist()
        return found
    some = logits if len(drawing) == len(rows) else logits[drawing]
    options = [rows[k].sampling for k in drawing]

    def column(values: list[float]) -> Tensor:
        return torch.tensor(values, device=some.device)[:, None]

    p = sampling_probabilities(
        some,
        column([one.temperature for one in options]),
        column([one.top_k for one in options]),
        column([max(one.top_p, 1e-9) for one in options]).double(),
        column([one.min_p for one in options]).double(),
    )
    below = p.cumsum(-1)
    uniform = [row.random.random() for row in rows if row.random is not None]
    u = torch.tensor(uniform, dtype=torch.float64, device=some.device)[:, None]
    # Inverse CDF: the first token whose cumulative probability exceeds u times the total. Scaling by the total keeps
    # the index in range although the sum is rounded.
    tokens = (below <= u * below[:, -1:]).sum(-1).clamp(max=p.shape[1] - 1).tolist()
    if len(drawing) == len(rows):
        return [int(k) for k in tokens]
    chosen: list[int] = logits.argmax(-1).tolist()
    for k, token in zip(drawing, tokens, strict=True):
        chosen[k] = int(token)
    return chosen


def top_logprobs(
    logp: Tensor, ids: Sequence[int], tops: Sequence[int], texts: Sequence[str]
) -> list[tuple[float, dict[str, float] | None]]:
    """Return log P of these tokens, one per row of logp (n, K), each with the `tops[row]` likeliest in its place.

    The token itself is among them.
    """
    own = logp.gather(1, torch.tensor(ids, device=logp.device)[:, None])[:, 0].tolist()
    most = max(tops, default=0)
    if not most:
        return [(each, None) for each in own]
    best = logp.topk(min(most, logp.shape[1]))
    found: list[tuple[float, dict[str, float] | None]] = []
    rows = zip(ids, own, tops, best.values.tolist(), best.indices.tolist(), strict=True)
    for k, mine, top, values, indices in rows:
        named = {texts[i]: value for i, value in zip(indices[:top], values[:top], strict=True)}
        found.append((mine, named | {texts[k]: mine} if top else None))
    return found


def sample_with_probability(rows: Sequence[BatchRow | StepBatch], scores: Tensor) -> tuple[list[int], list[float]]:
    """Return the label that each row samples from its scores (n, K), and the label's probability."""
    labels = sample_tokens(rows, rows[0].served.writable(scores))
    p = scores.softmax(-1)
    return labels, p.gather(1, torch.tensor(labels, device=p.device)[:, None])[:, 0].tolist()


def step_outputs(rows: Sequence[StepRow], scores: Tensor) -> list[StepOutput]:
    """Return the outputs of rows from their scores (n, K)."""
    if not rows:
        return []
    labels, own = sample_with_probability(rows, scores)
    wanted = [k for k, row in enumerate(rows) if row.all_probabilities]
    full = dict(zip(wanted, scores[wanted].softmax(-1).tolist(), strict=True)) if wanted else {}
    return [StepOutput(label, share, full.get(k)) for k, (label, share) in enumerate(zip(labels, own, strict=True))]


NOT_FINITE = "the model's output is not a number: its weights are too large, or damaged"


class EventBuilder:
    """Builder of events from scores; a row whose events cannot be made fails alone."""

    def __init__(self, counts: EngineCounters) -> None:
        self.counts = counts

    def report_batch(self, columns: list[StepBatch], scores: Tensor, events: BatchEvents) -> None:
        """Report the outputs of step batches from the scores (n, K) after their inputs."""
        ends = [*itertools.accumulate((len(column.slots) for column in columns), initial=0)]

        def draw(some: Sequence[int]) -> tuple[list[int], list[float]]:
            these = columns[some[0] : some[-1] + 1]
            return sample_with_probability(
                [column for column in these for _ in column.slots], scores[ends[some[0]] : ends[some[-1] + 1]]
            )

        for some, (labels, shares) in run_isolated(
            draw, range(len(columns)), lambda k, error: events.fail(columns[k], error)
        ):
            first = ends[some[0]]
            for k in some:
                part = slice(ends[k] - first, ends[k + 1] - first)
                events.end(columns[k], StepBatchOutput(labels[part], shares[part]))

    def report_inputs(self, row: BatchRow, scores: Tensor, given: Sequence[int], events: BatchEvents) -> None:
        """Report on each input that a row has just read; scores (T, K) follow the inputs."""
        try:
            if isinstance(row, GenerationRow):
                self._report_logprobs(row, scores, given, events)
            elif isinstance(row, StepRow):  # `settle` reports the last one
                row.outputs += step_outputs([row] * (len(scores) - 1), scores[:-1])
        except Exception as error:
            events.fail(row, error)

    def _report_logprobs(self, row: GenerationRow, scores: Tensor, given: Sequence[int], events: BatchEvents) -> None:
        """Report the log probabilities of the tokens that a row has just read; scores (T, K) follow the tokens."""
        logp = scores.double().log_softmax(-1)
        known, judged = (logp, given[1:]) if row.before is None else (torch.cat([row.before[None], logp]), given)
        row.before = logp[-1]
        if len(judged):
            texts = row.served.token_texts
            found = top_logprobs(known[: len(judged)], judged, [row.logprobs or 0] * len(judged), texts)
            events.add(
                row,
                PromptLogprobs([TokenLogprob(k, texts[k], 0, *each) for k, each in zip(judged, found, strict=True)]),
            )

    def settle(self, rows: Sequence[BatchRow], scores: Tensor, events: BatchEvents) -> None:
        """Advance rows that have read an input, with the scores (n, K) after it: report, generate a token, or end."""
        if events.ended and any(row in events.ended for row in rows):
            kept = [k for k, row in enumerate(rows) if row not in events.ended]
            rows, scores = [rows[k] for k in kept], scores[kept]
        finite = scores.isfinite().all(-1)
        if not bool(finite.all()):
            for row in (rows[k] for k in (~finite).nonzero()[:, 0].tolist()):
                events.fail(row, RunError(NOT_FINITE))
            kept = finite.nonzero()[:, 0].tolist()
            rows, scores = [rows[k] for k in kept], scores[kept]
        saying = [k for k, row in enumerate(rows) if isinstance(row, StepRow) and (row.every or not row.left)]
        found = run_isolated(
            lambda some: step_outputs([cast(StepRow, rows[k]) for k in some], _select(scores, some)),
            saying,
            lambda k, error: events.fail(rows[k], error),
        )
        for some, said in found:
            for k, reading in zip(some, said, strict=True):
                cast(StepRow, rows[k]).outputs.append(reading)
        writing = {
            k: row for k, row in enumerate(rows) if isinstance(row, GenerationRow) and row.writes and not row.left
        }
        for k, row in enumerate(rows):
            if not row.left and k not in writing and row not in events.ended:
                self.end(row, events)
        if writing:
            self._write(list(writing.values()), _select(scores, list(writing)), events)

    def _write(self, rows: Sequence[GenerationRow], scores: Tensor, events: BatchEvents) -> None:
        """Sample one token per row from the scores."""
        served = rows[0].served
        texts = served.token_texts

        def draw(some: Sequence[int]) -> list[TokenLogprob]:
            these, p = [rows[k] for k in some], _select(scores, some)
            tokens = sample_tokens(these, served.writable(p))
            asked = [k for k, row in enumerate(these) if row.logprobs is not None]
            known: dict[int, tuple[float, dict[str, float] | None]] = {}
            if asked:
                tops = [these[k].logprobs or 0 for k in asked]
                found = top_logprobs(p[asked].double().log_softmax(-1), [tokens[k] for k in asked], tops, texts)
                known = dict(zip(asked, found, strict=True))
            return [TokenLogprob(token, texts[token], 0, *known.get(k, (None, None))) for k, token in enumerate(tokens)]

        self.counts.written[served.name] = self.counts.written.get(served.name, 0) + len(rows)
        for some, tokens in run_isolated(draw, range(len(rows)), lambda k, error: events.fail(rows[k], error)):
            for k, token in zip(some, tokens, strict=True):
                try:
                    self._written(rows[k], token, events)
                except Exception as error:
                    events.fail(rows[k], error)

    def _written(self, row: GenerationRow, token: TokenLogprob, events: BatchEvents) -> None:
        text, released = row.text.add(token)
        row.writes -= 1
        row.inputs, row.at, row.every = (token.id,), 0, False
        if row.writes and not row.text.stopped:
            events.add(row, TextDelta(text, released, token.id))
            return
        row.reason = "stop" if row.text.stopped else "length"
        row.writes = 0
        more, rest = row.text.end()
        events.add(row, TextDelta(text + more, released + rest, token.id))
        if not row.stays:
            self.end(row, events)  # else it ends once its state has read this token too

    def end(self, row: BatchRow, events: BatchEvents) -> None:
        try:
            state = row.served.pool.state(row.slot) if row.keep else None
            events.end(row, RowEnd(row.reason, state, row.outputs if isinstance(row, StepRow) else ()))
        except Exception as error:
            events.fail(row, error)


def _select(scores: Tensor, which: Sequence[int]) -> Tensor:
    return scores if len(which) == len(scores) else scores[list(which)]
