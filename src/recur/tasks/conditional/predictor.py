"""Trained conditional language model: generation of lines for a label, and evaluation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from recur.baselines.text_ngrams import label_ngram_baselines
from recur.data.text import SPECIALS, Pair
from recur.data.text.corpus import normalised
from recur.data.text.stream import Floats, Ids
from recur.decoding import SamplingOptions, beam_search, greedy_decode, likelihoods, sample_decode
from recur.errors import OptionError, TextError, unknown
from recur.models import ConditionalModel
from recur.models.decoder import BatchDecoder
from recur.options import Natural, checked
from recur.runs import Run
from recur.tasks.common.predictor import Predictor
from recur.tasks.common.splits import split
from recur.tasks.common.teacher_forcing import sample_evenly
from recur.tasks.conditional.task import ConditionalTask, read_lines
from recur.utils.types import JsonObject


class ConditionalWriter(Predictor[ConditionalModel]):
    """Trained language model of lines with labels."""

    task: ConditionalTask

    def __init__(self, task: ConditionalTask, runs: Sequence[Run], device: str = "auto") -> None:
        super().__init__(task, runs, device)
        self.vocab = self.run.vocab
        self.labels = self.run.vocabs["labels"].tokens[len(SPECIALS) :]

    @torch.no_grad()
    def generate(
        self, label: str, *, samples: int = 1, seed: int | None = None, width: int = 0, **choice: Any
    ) -> list[str]:
        """Lines of a label, drawn as one batch; with `width`, the likeliest that beam search finds."""
        writer = self._writer(label)
        if checked("width", width, Natural):
            found = beam_search(writer, width, width)[0] if width > 1 else greedy_decode(writer)
        else:
            found = sample_decode(writer, SamplingOptions(**choice), samples, seed)[0]
        return [self.task.decode(self.vocab, made) for made in found]

    @torch.no_grad()
    def _predict(
        self,
        lines: Iterable[str],
        *,
        beam: int = 0,
        nbest: int = 1,
        samples: int = 1,
        seed: int | None = None,
        **choice: Any,
    ) -> Iterator[JsonObject]:
        """A line of each label, drawn, or with `beam` the likeliest found; several with `samples` or `nbest`."""
        self.refuse({name: value for name, value in choice.items() if name not in SamplingOptions.__dataclass_fields__})
        for label in lines:
            writer = self._writer(label.strip())
            if beam or nbest > 1:
                self.refuse(choice)
                found = (
                    greedy_decode(writer) if max(beam, nbest) == 1 else beam_search(writer, max(beam, nbest), nbest)[0]
                )
            else:
                found = sample_decode(writer, SamplingOptions(**choice), samples, seed)[0]
            made = [{"output": self.task.decode(self.vocab, w), "score": w.score, "cut": w.cut} for w in found]
            yield {"input": label, **made[0], "nbest": made}

    def _writer(self, label: str) -> BatchDecoder:
        if not isinstance(label, str) or label not in self.labels:
            raise OptionError(unknown("label", label, self.labels))
        k = torch.tensor([self.run.vocabs["labels"].ids[label]], device=self.model.labels.weight.device)
        return self.model.writer(k)

    def logprobs(self, ids: Ids, label: str) -> Floats:
        """log P of every token of a line given its label and those written before it, in the order of writing, and of
        its end."""
        writer = self._writer(label)
        written = np.asarray(ids[::-1] if self.task.backward else ids, np.int64).copy()
        target = torch.from_numpy(written)[None].to(writer.device)
        found: Floats = likelihoods(writer, target, target.new_tensor([len(ids)]))[0].cpu().numpy()
        return found

    def logprob(self, text: str, label: str) -> float:
        """log P of a line given its label, in nats, its end included."""
        return sum(logp for _, logp in self.token_logprobs(text, label) if logp is not None)

    def token_logprobs(self, text: str, label: str) -> list[tuple[str, float | None]]:
        """The tokens of a line in the order of writing and its end, each with log P given those before it.

        A symbol that was never seen in training has no probability: None.
        """
        if "\n" in normalised(text):
            raise TextError(f"a model of lines measures one line, and this is more: {text[:40]!r}")
        pair = Pair(label, normalised(text), "the text")
        self.task.encode([pair], self.run.vocabs["labels"], self.vocab, training=False)  # or what is wrong with it
        ids = self.vocab.encode(pair.target)
        names = self.vocab.named(pair.target, ids)
        values: list[float | None] = self.logprobs(ids, label).tolist()
        can, written = self.vocab.writable(), ids
        if self.task.backward:
            names, written = names[::-1], ids[::-1]
        values = [value if at == len(ids) or can[written[at]] else None for at, value in enumerate(values)]
        return list(zip([*names, "<eos>"], values, strict=True))

    @torch.no_grad()
    def _evaluate(self, texts: Sequence[str] | None, **options: Any) -> JsonObject:
        """Perplexity of lines given their labels, ends included; beside it that of n-grams."""
        self.refuse(options)
        pairs = self.examples(texts, read_lines)
        encoded = self.task.encode(pairs, self.run.vocabs["labels"], self.vocab, training=False)
        found = self.task.losses(self.model, encoded)
        predictions = sum(len(self.vocab.without_unseen(line)) + 1 for _, line in encoded)
        bits = found["loss"] / math.log(2) * predictions / sum(len(pair.target) for pair in pairs)
        counts = {"tokens": predictions, "sequences": len(pairs)}
        made: JsonObject = {"model": self.name, **found, "bits_per_character": bits, **counts}
        if self.has_training_texts():
            train, valid, _ = split(self.task.options, read_lines)
            plain = label_ngram_baselines(train, sample_evenly(valid), self.vocab.tokenizer, self.task.backward)
            made["beside"] = [{"model": name, "perplexity": measure(pairs)} for name, measure in plain.items()]
        return made


PREDICTOR = ConditionalWriter
