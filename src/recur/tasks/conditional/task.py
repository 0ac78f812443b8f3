"""Lines of a given label, 1 → n: `recur train lines.tsv --task conditional`, then lines of a label."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from recur.baselines.text_ngrams import label_ngram_baselines
from recur.data.reading import Reading
from recur.data.text import SPECIALS, Pair, Vocab, fit_lines, read_labelled
from recur.data.text.tokenizers import without_leading_marks
from recur.decoding import DecodedSequence, SamplingOptions, sample_decode
from recur.models import ConditionalModel, DecoderScores
from recur.runs import Vocabs
from recur.tasks.common.batching import EncodedPair, PairBatch, PairData, choose_token, max_steps, with_time_scale
from recur.tasks.common.contract import Baseline, PretrainedSlots, Validation
from recur.tasks.common.splits import reading_of, split, with_columns
from recur.tasks.common.teacher_forcing import DecoderTask, sample_evenly
from recur.tasks.conditional.options import ConditionalOptions


def read_lines(names: Sequence[str], reading: Reading | None = None) -> list[Pair]:
    """Labels and their lines, from the same files as a classifier's: with or without a header, in either order."""
    if reading is not None:
        reading.multi_label = False
    return [Pair(one.label, one.text, one.where, one.group) for one in read_labelled(names, reading=reading)]


class ConditionalTask(DecoderTask[ConditionalOptions, ConditionalModel]):
    name = "conditional"
    verb = "sample"
    target_name = "vocab"
    places = PretrainedSlots(
        embedding="decoder.embedding.weight",
        recurrent="decoder.network.recurrent",
        output=("decoder.symbols.weight", "decoder.symbols.bias"),
        lines=True,
    )

    @classmethod
    def settle(cls, options: ConditionalOptions) -> ConditionalOptions:
        options = with_columns(options)
        if options.token is None:
            pairs = read_lines(options.texts, reading_of(options))
            options = options.changed(token=choose_token(pair.target for pair in pairs))
        options = options.for_token(str(options.token))
        if options.recurrence == "output":
            options = options.with_defaults(condition="input")
        return super().settle(with_time_scale(options, lambda: map(max_steps, cls(options).read().train)))

    @property
    def backward(self) -> bool:
        """Whether lines are written from their end."""
        return self.options.direction == "backward"

    def encode(self, pairs: Sequence[Pair], source: Vocab, target: Vocab, *, training: bool) -> list[EncodedPair]:
        """Lines in the order of writing."""
        encoded = super().encode(pairs, source, target, training=training)
        return [(label, line[::-1].copy()) for label, line in encoded] if self.backward else encoded

    def decode(self, vocab: Vocab, made: DecodedSequence) -> str:
        """The text of a line that was written, from its first whole letter on."""
        return without_leading_marks(vocab.decode(made.ids[::-1])) if self.backward else vocab.decode(made.ids)

    def read(self, vocabs: Vocabs | None = None) -> PairData:
        train, valid, _ = split(self.options, read_lines, self.new_reading())
        if vocabs is None:
            lines, token = (pair.target for pair in train), self.options.token or "char"
            vocabs = {
                "labels": fit_lines((pair.source for pair in train), "line"),
                "vocab": fit_lines(lines, token, **self.options.vocab_options()),
            }
        ids = [self.encode(pairs, vocabs["labels"], vocabs["vocab"], training=True) for pairs in (train, valid)]
        return PairData(vocabs, ids[0], ids[1], train, valid)

    def describe(self, data: PairData) -> str:
        labels = len(data.vocabs["labels"]) - len(SPECIALS)
        return f"{len(data.train):,} training lines of {labels} labels, {len(data.vocabs['vocab']):,} tokens"

    def baselines(self, data: PairData) -> list[Baseline]:
        """n-grams of the same lines, ends included, that do not know their labels, and that do."""
        valid = sample_evenly(data.valid_pairs)
        plain = label_ngram_baselines(data.train_pairs, valid, data.vocabs["vocab"].tokenizer, self.backward)
        return [Baseline(name, measure(valid)) for name, measure in plain.items()]

    def new_model(self, vocabs: Vocabs) -> ConditionalModel:
        return ConditionalModel(
            len(vocabs["labels"]), len(vocabs["vocab"]), self.options, vocabs["vocab"].writable().tolist()
        )

    def score(self, model: ConditionalModel, batch: PairBatch, forced: Tensor | None = None) -> DecoderScores:
        scores: DecoderScores = model(batch.source[:, 0], batch.target, batch.lengths, forced)
        return scores

    def validate(self, model: ConditionalModel, data: PairData) -> Validation:
        found = self.losses(model, sample_evenly(data.valid))
        summary = f"valid perplexity {found['perplexity']:8.3f}  loss {found['loss']:.3f} nats  gap {found['gap']:6.3f}"
        return Validation(found["loss"], {f"valid_{name}": value for name, value in found.items()}, summary)

    def sample(self, model: ConditionalModel, data: PairData) -> str:
        labels = torch.arange(len(SPECIALS), min(len(SPECIALS) + 4, len(data.vocabs["labels"])))
        drawn = sample_decode(
            model.writer(labels.to(model.labels.weight.device)), SamplingOptions(temperature=0.8), seed=0
        )
        named = zip(labels.tolist(), drawn, strict=True)
        return "\n".join(
            f"{data.vocabs['labels'].tokens[k]} → {self.decode(data.vocabs['vocab'], found[0])}" for k, found in named
        )


TASK = ConditionalTask
