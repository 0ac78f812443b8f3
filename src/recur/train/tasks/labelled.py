"""Language models of lines with labels: `recur train lines.tsv --context label`, and lines of a given label."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from recur.decode import Choice, greedy, sample, search
from recur.errors import OptionError, unknown
from recur.models import DecoderOptions, Labelled, Scores
from recur.text import SPECIALS, fit_lines, read_pairs
from recur.train.data import VOCAB_OPTIONS
from recur.train.machine import pick_device
from recur.train.pairs import PairBatch, PairData, split_pairs
from recur.train.tasks.task import Measured, Opened, Vocabs
from recur.train.tasks.writing import MANY, WritingTask

if TYPE_CHECKING:
    from recur.train.run import Run


class LabelledTask(WritingTask):
    title = "the task language with --context label"
    verb = "sample"
    vocab_names = ("labels", "vocab")
    target_name = "vocab"
    reads = frozenset(
        {*DecoderOptions.__dataclass_fields__, *VOCAB_OPTIONS, "context", "teacher", "smoothing"} - {"attention"}
    )

    def read(self, vocabs: Vocabs | None = None) -> PairData:
        if self.config.stop == "source" or self.config.condition in ("aligned", "none"):
            raise OptionError("a label has no length and no memory: --stop source and --condition aligned have no use")
        train, valid, _ = split_pairs(self.config)
        if vocabs is None:
            vocabs = {
                "labels": fit_lines((pair.source for pair in train), "line"),
                "vocab": fit_lines(
                    (pair.target for pair in train), **{name: getattr(self.config, name) for name in VOCAB_OPTIONS}
                ),
            }
        ids = [self.encode(pairs, vocabs["labels"], vocabs["vocab"], training=True) for pairs in (train, valid)]
        return PairData(vocabs, ids[0], ids[1], train, valid)

    def about(self, data: PairData) -> str:
        labels = len(data.vocabs["labels"]) - len(SPECIALS)
        return f"{len(data.train):,} lines of {labels} labels to learn from, {len(data.vocabs['vocab']):,} tokens"

    def new_model(self, vocabs: Vocabs) -> Labelled:
        names = [name for name in DecoderOptions.__dataclass_fields__ if name != "attention"]
        options = DecoderOptions(attention="none", **{name: getattr(self.config, name) for name in names})
        return Labelled(len(vocabs["labels"]), len(vocabs["vocab"]), options)

    def score(self, model: Labelled, batch: PairBatch, forced: Tensor | None = None) -> Scores:
        scores: Scores = model(batch.source[:, 0], batch.target, batch.lengths, forced)
        return scores

    def measure(self, model: Labelled, data: PairData) -> Measured:
        found = self.losses(model, data.valid[:MANY])
        said = f"valid perplexity {found['perplexity']:8.3f}  gap {found['gap']:6.3f}"
        return Measured(found["loss"], {f"valid_{name}": value for name, value in found.items()}, said)

    def sample(self, model: Labelled, data: PairData) -> str:
        labels = torch.arange(len(SPECIALS), min(len(SPECIALS) + 4, len(data.vocabs["labels"])))
        drawn = sample(model.writing(labels.to(model.labels.weight.device)), Choice(temperature=0.8), seed=0)
        named = zip(labels.tolist(), drawn, strict=True)
        return "\n".join(
            f"{data.vocabs['labels'].tokens[k]} → {data.vocabs['vocab'].decode(found[0].ids)}" for k, found in named
        )

    def open(self, run: Run, device: str = "cpu", also: Sequence[Run] = ()) -> LabelledLanguage:
        if also:
            raise OptionError("language models are measured one by one, not as one")
        return LabelledLanguage(run, device)


class LabelledLanguage(Opened):
    """A trained language model of lines with labels."""

    def __init__(self, run: Run, device: str = "cpu") -> None:
        self.run, self.vocab = run, run.vocab
        self.labels = run.vocabs["labels"].tokens[len(SPECIALS) :]
        self.model: Labelled = run.load_model(str(pick_device(device)))

    def __repr__(self) -> str:
        return f"LabelledLanguage({str(self.run.path)!r}, {len(self.labels)} labels, {len(self.vocab)} tokens)"

    @torch.no_grad()
    def generate(
        self, label: str, *, samples: int = 1, seed: int | None = None, width: int = 0, **choice: Any
    ) -> list[str]:
        """Lines of a label, drawn as one batch; with `width`, the likeliest that beam search finds."""
        if label not in self.labels:
            raise OptionError(unknown("label", label, self.labels))
        k = torch.tensor([self.run.vocabs["labels"].ids[label]], device=self.model.labels.weight.device)
        writer = self.model.writing(k)
        if width:
            found = search(writer, width, width)[0] if width > 1 else greedy(writer)
        else:
            found = sample(writer, Choice(**choice), samples, seed)[0]
        return [self.vocab.decode(made.ids) for made in found]

    @torch.no_grad()
    def evaluate(self, texts: list[str] | None = None, **options: Any) -> dict[str, Any]:
        """Perplexity of lines given their labels, ends included."""
        for name in options:
            raise OptionError(f"--{name.replace('_', '-')} is not for language models")
        pairs = read_pairs(texts) if texts else split_pairs(self.run.config)[2]
        task = self.run.task
        assert isinstance(task, LabelledTask)
        encoded = task.encode(pairs, self.run.vocabs["labels"], self.vocab, training=False)
        found = task.losses(self.model, encoded)
        predictions = sum(len(line) + 1 for _, line in encoded)
        bits = found["loss"] / math.log(2) * predictions / sum(len(pair.target) for pair in pairs)
        counts = {"tokens": predictions, "sequences": len(pairs)}
        return {"model": str(self.run.path), **found, "bits_per_character": bits, **counts}
