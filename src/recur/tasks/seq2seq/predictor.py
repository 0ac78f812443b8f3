"""Trained encoder–decoder: beam search, sampling, attention and evaluation."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recur.data.batching import padded
from recur.data.text import UNK, Pair, read_pairs
from recur.data.text.labelled import TableInputs, read_pair_inputs
from recur.data.text.stream import Ids
from recur.decoding import (
    DecodedSequence,
    DecoderEnsemble,
    SamplingOptions,
    StepDecoder,
    beam_search,
    greedy_decode,
    likelihood,
    sample_decode,
)
from recur.errors import OptionError, TextError
from recur.i18n import Message
from recur.models import Seq2Seq
from recur.tasks.common.batching import EncodedPair, PairBatch
from recur.tasks.common.metrics import perplexity
from recur.tasks.common.predictor import Predictor
from recur.tasks.common.splits import split
from recur.tasks.common.teacher_forcing import ROWS, pair_batches
from recur.tasks.seq2seq.task import Seq2SeqTask, judge
from recur.utils.types import JsonObject, Metrics


class Transducer(Predictor[Seq2Seq]):
    """Trained encoder–decoder, or an ensemble."""

    ensembles = True
    task: Seq2SeqTask

    def _predict(self, lines: Iterable[str], *, attention: bool = False, **options: Any) -> Iterator[JsonObject]:
        """`output` of each line, its `score` (log-probability), whether it was `cut`, what was `unknown` in it; with
        `nbest` or `samples` above 1, all of them; with `attention`, where the first of them looked. Lines are taken and
        written in batches of 128."""
        lines = iter(lines)
        while True:
            batch = [line for _, line in zip(range(ROWS), lines, strict=False)]
            if not batch:
                return
            sources = [self._encode(line) for line in batch]
            written = self._write(sources, **options)
            looked = self._attention(batch, sources, [found[0] for found in written]) if attention else []
            for k, (line, found) in enumerate(zip(batch, written, strict=True)):
                made = [
                    {"output": self.run.vocabs["target"].decode(w.ids), "score": w.score, "cut": w.cut} for w in found
                ]
                unknown = list(self.run.vocabs["source"].unknown_tokens(line))
                row = {"input": line, **made[0], "unknown": unknown, "nbest": made}
                yield row | ({"attention": looked[k]} if attention else {})

    @torch.no_grad()
    def _attention(
        self, lines: Sequence[str], sources: Sequence[Ids], written: Sequence[DecodedSequence]
    ) -> list[JsonObject]:
        """The weights (T, S) with which each symbol written, and the end, looked at those of its source; of several
        models, their mean. One pass with what was written as its teacher."""
        if self.model.decoder.attention is None:
            raise OptionError(f"{self.name} has no attention to show: it was trained with --attention none")
        source, s = padded(sources)
        target, t = padded([np.array(made.ids, np.int64) for made in written])
        batch = PairBatch(source, s, target, t).to(self.device)
        weights = torch.stack([model(*batch).weights for model in self.models]).mean(0).cpu()
        split, names = self.run.vocabs["source"].tokenizer.split, self.run.vocabs["target"].tokens
        ends = self.task.options.stop in ("eos", "bernoulli")
        found: list[JsonObject] = []
        for k, (line, made) in enumerate(zip(lines, written, strict=True)):
            symbols = [names[i] for i in made.ids] + ["<eos>"] * (ends and not made.cut)
            rows = weights[k, : len(symbols), : len(sources[k])].tolist()
            found.append({"source": split(line), "target": symbols, "weights": rows})
        return found

    def _encode(self, line: str) -> Ids:
        ids = self.run.vocabs["source"].encode(line).astype(np.int64)
        if not len(ids):
            raise TextError(Message("the source {source} is empty: there is nothing to write from", source=repr(line)))
        return ids

    def _write(
        self,
        sources: Sequence[Ids],
        *,
        beam: int = 1,
        nbest: int = 1,
        length_penalty: float = 0.0,
        coverage: float = 0.0,
        samples: int = 0,
        seed: int | None = None,
        **choice: Any,
    ) -> list[list[DecodedSequence]]:
        """All of them as one batch. A beam of 1 takes the likeliest symbol at each step."""
        writer = self._writer(*padded(sources))
        if samples and (beam > 1 or nbest > 1):
            raise OptionError("sequences are either drawn or searched for: samples, or beam and nbest")
        if length_penalty and beam == 1:
            raise OptionError("a length penalty ranks what a beam search finds: give a beam above 1")
        if coverage and beam == 1:
            raise OptionError("coverage ranks what a beam search finds: give a beam above 1")
        if coverage and any(model.decoder.attention is None for model in self.models):
            raise OptionError(f"{self.name} has no attention to cover its source: it was trained with --attention none")
        self.refuse({name: value for name, value in choice.items() if name not in SamplingOptions.__dataclass_fields__})
        if samples:
            return sample_decode(writer, SamplingOptions(**choice), samples, seed)
        if choice:
            raise OptionError(f"{', '.join(choice)}: for drawn sequences only; say how many with samples")
        if beam == 1 and nbest == 1:
            return [[made] for made in greedy_decode(writer)]
        return beam_search(writer, beam, nbest, length_penalty, coverage)

    @torch.no_grad()
    def _writer(self, source: Tensor, lengths: Tensor) -> StepDecoder[Any]:
        writers = [model.writer(source.to(self.device), lengths) for model in self.models]
        return writers[0] if len(writers) == 1 else DecoderEnsemble(writers)

    def read_inputs(self, name: str) -> TableInputs | None:
        """Read the sources of a table of pairs; None if each line of the file is a source."""
        rows = read_pair_inputs(name, self.new_reading())
        return None if rows is None else TableInputs(name, rows)

    def label_scores(self, labels: Sequence[str], outputs: Sequence[Any]) -> Metrics:
        """Return error rates, and BLEU and chrF of sentences."""
        return judge(self.run.vocabs["target"].tokenizer, list(labels), list(outputs))

    def _perplexity(self, encoded: Sequence[EncodedPair]) -> Metrics:
        """Return the perplexity of an ensemble, by the mean of its probabilities."""
        total, count = 0.0, 0
        for batch in pair_batches(encoded):
            count += int(self.models[0].decoder.predictions(batch.target, batch.lengths).sum())
            moved = batch.to(self.device)
            writer = self._writer(batch.source, batch.source_lengths)
            total -= float(likelihood(writer, moved.target, moved.lengths).sum())
        return {"loss": total / count, "perplexity": perplexity(total / count)}

    @torch.no_grad()
    def _evaluate(self, texts: Sequence[str] | None, **options: Any) -> JsonObject:
        """Error rates of what it writes for each source, BLEU and chrF of sentences; the perplexity of the targets."""
        pairs = self.examples(texts, read_pairs)
        begun = time.perf_counter()
        written: list[DecodedSequence] = []
        encoded = self.task.encode(pairs, self.run.vocabs["source"], self.run.vocabs["target"], training=False)
        for at in range(0, len(pairs), ROWS):
            written += [found[0] for found in self._write([s for s, _ in encoded[at : at + ROWS]], **options)]
        seconds = time.perf_counter() - begun
        vocab = self.run.vocabs["target"]
        outputs = [vocab.decode(found.ids) for found in written]
        row: JsonObject = {"model": self.name, **judge(vocab.tokenizer, [pair.target for pair in pairs], outputs)}
        row |= self.task.losses(self.models[0], encoded) if len(self.models) == 1 else self._perplexity(encoded)
        unknown = sum(int((source == UNK).sum() + (target == UNK).sum()) for source, target in encoded)
        row |= {"cut": sum(found.cut for found in written) / len(pairs), "sequences": len(pairs), "oov": unknown}
        return row | {"sequences_per_second": len(pairs) / seconds, "beside": self._beside(pairs)}

    def _beside(self, pairs: Sequence[Pair]) -> list[JsonObject]:
        """What needs no network, on the same pairs; none where what was learned from is not on this machine."""
        if not self.has_training_texts():
            return []
        found = self.task.baseline_scores(split(self.task.options, read_pairs)[0], self.run.vocabs, pairs)
        return [{"model": name, **figures} for name, figures in found.items()]


PREDICTOR = Transducer
