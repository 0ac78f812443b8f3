"""Events that rows get from the scores behind their inputs: readings, log probabilities and drawn tokens."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from recur.errors import RunError
from recur.serve.counts import Counts
from recur.serve.drawing import draw_tokens, drawn, likeliest, readings
from recur.serve.isolation import TurnEvents, isolated
from recur.serve.rows import Column, End, Judged, Piece, Row, Said, StepRow, TextRow
from recur.serve.text import Token

FAILED = "the model's output is not a number: its weights are too large, or damaged"


class Outputs:
    """Makes events of scores; a row whose events cannot be made fails alone."""

    def __init__(self, counts: Counts) -> None:
        self.counts = counts

    def answer(self, columns: list[Column], scores: Tensor, news: TurnEvents) -> None:
        """Answer columns from the scores (n, K) behind their inputs, one after the other."""
        ends = [*itertools.accumulate((len(column.slots) for column in columns), initial=0)]

        def draw(some: Sequence[int]) -> tuple[list[int], list[float]]:
            these = columns[some[0] : some[-1] + 1]
            return drawn([column for column in these for _ in column.slots], scores[ends[some[0]] : ends[some[-1] + 1]])

        for some, (labels, shares) in isolated(
            draw, range(len(columns)), lambda k, error: news.fail(columns[k], error)
        ):
            first = ends[some[0]]
            for k in some:
                part = slice(ends[k] - first, ends[k + 1] - first)
                news.end(columns[k], Said(labels[part], shares[part]))

    def along(self, row: Row, scores: Tensor, given: Sequence[int], news: TurnEvents) -> None:
        """Report on every input that a row has just read; scores (T, K) are those behind each."""
        try:
            if isinstance(row, TextRow):
                self._judge(row, scores, given, news)
            elif isinstance(row, StepRow):  # the last one is reported by `settle`
                row.readings += readings([row] * (len(scores) - 1), scores[:-1])
        except Exception as error:
            news.fail(row, error)

    def _judge(self, row: TextRow, scores: Tensor, given: Sequence[int], news: TurnEvents) -> None:
        """How likely the tokens were that a row has just read; scores (T, K) are those behind each."""
        logp = scores.double().log_softmax(-1)
        known, judged = (logp, given[1:]) if row.before is None else (torch.cat([row.before[None], logp]), given)
        row.before = logp[-1]
        if len(judged):
            texts = row.served.token_texts
            found = likeliest(known[: len(judged)], judged, [row.logprobs or 0] * len(judged), texts)
            news.say(row, Judged([Token(k, texts[k], 0, *each) for k, each in zip(judged, found, strict=True)]))

    def settle(self, rows: Sequence[Row], scores: Tensor, news: TurnEvents) -> None:
        """Rows that have read an input, and the scores (n, K) behind it: say what was seen, write, or end."""
        if news.ended and any(row in news.ended for row in rows):
            kept = [k for k, row in enumerate(rows) if row not in news.ended]
            rows, scores = [rows[k] for k in kept], scores[kept]
        finite = scores.isfinite().all(-1)
        if not bool(finite.all()):
            for row in (rows[k] for k in (~finite).nonzero()[:, 0].tolist()):
                news.fail(row, RunError(FAILED))
            kept = finite.nonzero()[:, 0].tolist()
            rows, scores = [rows[k] for k in kept], scores[kept]
        saying = [k for k, row in enumerate(rows) if isinstance(row, StepRow) and (row.every or not row.left)]
        found = isolated(
            lambda some: readings([cast(StepRow, rows[k]) for k in some], _these(scores, some)),
            saying,
            lambda k, error: news.fail(rows[k], error),
        )
        for some, said in found:
            for k, reading in zip(some, said, strict=True):
                cast(StepRow, rows[k]).readings.append(reading)
        writing = {k: row for k, row in enumerate(rows) if isinstance(row, TextRow) and row.writes and not row.left}
        for k, row in enumerate(rows):
            if not row.left and k not in writing and row not in news.ended:
                self.end(row, news)
        if writing:
            self._write(list(writing.values()), _these(scores, list(writing)), news)

    def _write(self, rows: Sequence[TextRow], scores: Tensor, news: TurnEvents) -> None:
        """One token each, drawn from the scores."""
        served = rows[0].served
        texts = served.token_texts

        def draw(some: Sequence[int]) -> list[Token]:
            these, p = [rows[k] for k in some], _these(scores, some)
            tokens = draw_tokens(these, served.writable(p))
            asked = [k for k, row in enumerate(these) if row.logprobs is not None]
            known: dict[int, tuple[float, dict[str, float] | None]] = {}
            if asked:
                tops = [these[k].logprobs or 0 for k in asked]
                found = likeliest(p[asked].double().log_softmax(-1), [tokens[k] for k in asked], tops, texts)
                known = dict(zip(asked, found, strict=True))
            return [Token(token, texts[token], 0, *known.get(k, (None, None))) for k, token in enumerate(tokens)]

        self.counts.written[served.name] = self.counts.written.get(served.name, 0) + len(rows)
        for some, tokens in isolated(draw, range(len(rows)), lambda k, error: news.fail(rows[k], error)):
            for k, token in zip(some, tokens, strict=True):
                try:
                    self._written(rows[k], token, news)
                except Exception as error:
                    news.fail(rows[k], error)

    def _written(self, row: TextRow, token: Token, news: TurnEvents) -> None:
        text, released = row.writing.add(token)
        row.writes -= 1
        row.inputs, row.at, row.every = (token.id,), 0, False
        if row.writes and not row.writing.stopped:
            news.say(row, Piece(text, released, token.id))
            return
        row.reason = "stop" if row.writing.stopped else "length"
        row.writes = 0
        more, rest = row.writing.end()
        news.say(row, Piece(text + more, released + rest, token.id))
        if not row.stays:
            self.end(row, news)  # else once it has read this token too

    def end(self, row: Row, news: TurnEvents) -> None:
        try:
            state = row.served.bank.state(row.slot) if row.keep else None
            news.end(row, End(row.reason, state, row.readings if isinstance(row, StepRow) else ()))
        except Exception as error:
            news.fail(row, error)


def _these(scores: Tensor, which: Sequence[int]) -> Tensor:
    return scores if len(which) == len(scores) else scores[list(which)]
