"""Sequences from sequences: pairs, an encoder and a decoder."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from recur.decode import Choice, Ensemble, Writer, Written, greedy, likelihood, sample, search
from recur.errors import OptionError, TextError
from recur.models import Scores, Seq2Seq, Seq2SeqOptions
from recur.text import UNK, Vocab, fit_lines, read_pairs
from recur.text.tokens import Ids
from recur.train.machine import pick_device
from recur.train.measure import perplexity
from recur.train.pairs import PairBatch, PairData, padded, split_pairs
from recur.train.scores import bleu, error_rates
from recur.train.tasks.task import Measured, Opened, Vocabs
from recur.train.tasks.writing import MANY, ROWS, WritingTask, batches_of

if TYPE_CHECKING:
    from recur.train.run import Run

TIE = 1e-4
"""Of two models that are wrong equally often, the one with the lower loss is better."""


class Seq2SeqTask(WritingTask):
    title = "the task seq2seq"
    vocab_names = ("source", "target")
    curve = "valid_word_error_rate"
    reads = frozenset(
        {*Seq2SeqOptions.__dataclass_fields__, "source_token", "target_token", "punctuation", "lower"}
        | {"min_freq", "max_size", "pieces", "teacher", "smoothing"}
    )

    def read(self, vocabs: Vocabs | None = None) -> PairData:
        c = self.config
        train, valid, _ = split_pairs(c)
        if vocabs is None:
            options: dict[str, Any] = {"min_freq": c.min_freq, "max_size": c.max_size, "pieces": c.pieces}
            options |= {"punctuation": c.punctuation, "lower": c.lower}
            vocabs = {
                "source": fit_lines((pair.source for pair in train), c.source_token, **options),
                "target": fit_lines((pair.target for pair in train), c.target_token, **options),
            }
        ids = [self.encode(pairs, vocabs["source"], vocabs["target"], training=True) for pairs in (train, valid)]
        return PairData(vocabs, ids[0], ids[1], train, valid)

    def about(self, data: PairData) -> str:
        sizes = " and ".join(f"{len(vocab):,} {name} symbols" for name, vocab in data.vocabs.items())
        return f"{len(data.train):,} pairs to learn from, {len(data.valid):,} to measure on; {sizes}"

    def new_model(self, vocabs: Vocabs) -> Seq2Seq:
        names = Seq2SeqOptions.__dataclass_fields__
        options = Seq2SeqOptions(**{name: getattr(self.config, name) for name in names})
        return Seq2Seq(len(vocabs["source"]), len(vocabs["target"]), options)

    def score(self, model: Seq2Seq, batch: PairBatch, forced: Tensor | None = None) -> Scores:
        scores: Scores = model(*batch, forced)
        return scores

    def measure(self, model: Seq2Seq, data: PairData) -> Measured:
        pairs, device = data.valid[:MANY], model.embedding.weight.device
        found = self.losses(model, pairs)
        written: list[Written] = []
        for batch in batches_of(pairs):
            written += greedy(model.writing(batch.source.to(device), batch.source_lengths))
        split = data.vocabs["target"].tokenizer.split
        wanted = [split(pair.target) for pair in data.valid_pairs[: len(pairs)]]
        found |= error_rates(wanted, [symbols_of(data.vocabs["target"], made.ids) for made in written])
        said = f"valid word error {found['word_error_rate']:5.2f} %  symbols {found['symbol_error_rate']:5.2f} %"
        said += f"  perplexity {found['perplexity']:6.3f}  gap {found['gap']:6.3f}"
        score = found["word_error_rate"] + TIE * found["loss"]
        return Measured(score, {f"valid_{name}": value for name, value in found.items()}, said)

    def sample(self, model: Seq2Seq, data: PairData) -> str:
        source, lengths = padded([source for source, _ in data.valid[:4]])
        written = greedy(model.writing(source.to(model.embedding.weight.device), lengths))
        shown = zip(data.valid_pairs, written, strict=False)
        return "\n".join(f"{pair.source} → {data.vocabs['target'].decode(made.ids)}" for pair, made in shown)

    def open(self, run: Run, device: str = "cpu", also: Sequence[Run] = ()) -> Transducer:
        return Transducer([run, *also], device)


def symbols_of(vocab: Vocab, ids: Iterable[int]) -> list[str]:
    return [vocab.tokens[k] for k in ids]


class Transducer(Opened):
    """A trained encoder–decoder, or several that write as one."""

    def __init__(self, runs: Sequence[Run], device: str = "cpu") -> None:
        self.runs, self.run, self.vocabs = runs, runs[0], runs[0].vocabs
        for other in runs[1:]:
            if other.vocabs != self.vocabs:
                raise OptionError(f"{other.path} and {self.run.path} have other vocabularies: they cannot write as one")
        self.device = pick_device(device)
        self.models: list[Seq2Seq] = [run.load_model(str(self.device)) for run in runs]

    def __repr__(self) -> str:
        return f"Transducer({', '.join(repr(str(run.path)) for run in self.runs)})"

    def __call__(self, text: str, **options: Any) -> str:
        """What it makes of a source."""
        (found,) = self.predict([text], **options)
        return str(found["output"])

    def predict(self, lines: Iterable[str], **options: Any) -> Iterator[dict[str, Any]]:
        """`output` of each line, its `score` (log-probability), whether it was `cut`, what was `unknown` in it; with
        `nbest` or `samples` above 1, all of them. Lines are taken and written in batches of 128."""
        lines = iter(lines)
        while True:
            batch = [line for _, line in zip(range(ROWS), lines, strict=False)]
            if not batch:
                return
            sources = [self._encode(line) for line in batch]
            for line, found in zip(batch, self._write(sources, **options), strict=True):
                made = [{"output": self.vocabs["target"].decode(w.ids), "score": w.score, "cut": w.cut} for w in found]
                unknown = list(self.vocabs["source"].unknown_tokens(line))
                yield {"input": line, **made[0], "unknown": unknown, "nbest": made}

    def _encode(self, line: str) -> Ids:
        ids = self.vocabs["source"].encode(line).astype(np.int64)
        if not len(ids):
            raise TextError(f"the source {line!r} is empty: there is nothing to write from")
        return ids

    def _write(
        self,
        sources: Sequence[Ids],
        *,
        beam: int = 1,
        nbest: int = 1,
        length_penalty: float = 0.0,
        samples: int = 0,
        seed: int | None = None,
        **choice: Any,
    ) -> list[list[Written]]:
        """All of them as one batch. A beam of 1 takes the likeliest symbol at each step."""
        writer = self._writer(*padded(sources))
        if samples and (beam > 1 or nbest > 1):
            raise OptionError("sequences are either drawn or searched for: samples, or beam and nbest")
        if length_penalty and beam == 1:
            raise OptionError("a length penalty ranks what a beam search finds: give a beam above 1")
        if samples:
            return sample(writer, Choice(**choice), samples, seed)
        if choice:
            raise OptionError(f"{', '.join(choice)}: for drawn sequences only; say how many with samples")
        if beam == 1 and nbest == 1:
            return [[made] for made in greedy(writer)]
        return search(writer, beam, nbest, length_penalty)

    @torch.no_grad()
    def _writer(self, source: Tensor, lengths: Tensor) -> Writer:
        writers = [model.writing(source.to(self.device), lengths) for model in self.models]
        return writers[0] if len(writers) == 1 else Ensemble(writers)

    def _perplexity(self, encoded: Sequence[tuple[Ids, Ids]]) -> dict[str, float]:
        """Of several models, by the mean of their probabilities."""
        total, count = 0.0, 0
        for batch in batches_of(encoded):
            count += int(self.models[0].decoder.predictions(batch.lengths).sum())
            moved = batch.to(self.device)
            writer = self._writer(batch.source, batch.source_lengths)
            total -= float(likelihood(writer, moved.target, moved.lengths).sum())
        return {"loss": total / count, "perplexity": perplexity(total / count)}

    @torch.no_grad()
    def evaluate(self, texts: list[str] | None = None, **options: Any) -> dict[str, Any]:
        """Error rates in per cent of what it writes for each source, and the perplexity of what was wanted."""
        task = self.run.task
        assert isinstance(task, Seq2SeqTask)
        pairs = read_pairs(texts) if texts else split_pairs(self.run.config)[2]
        begun = time.perf_counter()
        written: list[Written] = []
        encoded = task.encode(pairs, self.vocabs["source"], self.vocabs["target"], training=False)
        for at in range(0, len(pairs), ROWS):
            written += [found[0] for found in self._write([s for s, _ in encoded[at : at + ROWS]], **options)]
        seconds = time.perf_counter() - begun
        vocab, split = self.vocabs["target"], self.vocabs["target"].tokenizer.split
        wanted = [split(pair.target) for pair in pairs]
        made = [symbols_of(vocab, found.ids) for found in written]
        row: dict[str, Any] = {"model": " + ".join(str(run.path) for run in self.runs), **error_rates(wanted, made)}
        if vocab.tokenizer.kind in ("word", "subword"):
            in_words = [[vocab.tokenizer.join(symbols).split() for symbols in side] for side in (wanted, made)]
            row["bleu"] = bleu(in_words[0], in_words[1])
        row |= task.losses(self.models[0], encoded) if len(self.models) == 1 else self._perplexity(encoded)
        unknown = sum(int((source == UNK).sum() + (target == UNK).sum()) for source, target in encoded)
        row |= {"sequences": len(pairs), "cut": sum(found.cut for found in written), "oov": unknown}
        return row | {"sequences_per_second": len(pairs) / seconds}


TASK = Seq2SeqTask
