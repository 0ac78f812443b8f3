"""Sequences from sequences: pairs, an encoder and a decoder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor

from recur.decode import Written, greedy
from recur.models import Scores, Seq2Seq
from recur.run import Vocabs
from recur.tasks.contract import Baseline, Validation
from recur.tasks.examples import padded, split
from recur.tasks.pairs import PairBatch, PairData, longer_half
from recur.tasks.places import Places
from recur.tasks.scores import error_rates
from recur.tasks.seq2seq.options import Seq2SeqOptions, Symbol
from recur.tasks.tokens import choose_token, with_time_scale
from recur.tasks.writing import WritingTask, pair_batches, some_of
from recur.text import Vocab, fit_lines, read_pairs
from recur.text.recognise import between_spaces

MARGIN = 5
"""Symbols beyond the longest target after which a sequence is wrong anyway, and cut while training: a network that has
not learned to stop would take most of its time to write."""

TIE = 1e-4
"""Of two models that are wrong equally often, the one with the lower loss is better."""


class Seq2SeqTask(WritingTask[Seq2SeqOptions, Seq2Seq]):
    name = "seq2seq"
    curve = "valid_word_error_rate"
    places = Places(vocab="source", recurrent="encoder", token="source_token", layers="encoder_layers")

    @classmethod
    def settle(cls, options: Seq2SeqOptions) -> Seq2SeqOptions:
        if options.source_token is None or options.target_token is None:
            pairs = read_pairs(options.texts)
            options = options.changed(
                source_token=options.source_token or choose_symbol([pair.source for pair in pairs]),
                target_token=options.target_token or choose_symbol([pair.target for pair in pairs]),
            )
        words = "word" in (options.source_token, options.target_token)
        options = options.for_token("word") if words else options
        if options.recurrence == "output":
            options = options.with_defaults(condition="input")
        return super().settle(with_time_scale(options, lambda: map(longer_half, cls(options).read().train)))

    def read(self, vocabs: Vocabs | None = None) -> PairData:
        o = self.options
        train, valid, _ = split(o, read_pairs)
        if vocabs is None:
            sources, targets = (pair.source for pair in train), (pair.target for pair in train)
            vocabs = {
                "source": fit_lines(sources, o.source_token or "char", **o.vocab_options()),
                "target": fit_lines(targets, o.target_token or "char", **o.vocab_options()),
            }
        ids = [self.encode(pairs, vocabs["source"], vocabs["target"], training=True) for pairs in (train, valid)]
        return PairData(vocabs, ids[0], ids[1], train, valid)

    def describe(self, data: PairData) -> str:
        sizes = " and ".join(
            f"{len(vocab):,} {name} symbols ({vocab.tokenizer.kind})" for name, vocab in data.vocabs.items()
        )
        return f"{len(data.train):,} pairs to learn from, {len(data.valid):,} to measure on; {sizes}"

    def baselines(self, data: PairData) -> list[Baseline]:
        """What the same source had as its target in training; of one never seen, the source itself."""
        known = {pair.source: pair.target for pair in data.train_pairs}
        pairs, tokens = some_of(data.valid_pairs), data.vocabs["target"].tokenizer.split
        wrong = sum(tokens(known.get(pair.source, pair.source)) != tokens(pair.target) for pair in pairs)
        return [Baseline("look-up, or a copy", 100 * wrong / len(pairs))]

    def new_model(self, vocabs: Vocabs) -> Seq2Seq:
        return Seq2Seq(len(vocabs["source"]), len(vocabs["target"]), self.options)

    def score(self, model: Seq2Seq, batch: PairBatch, forced: Tensor | None = None) -> Scores:
        scores: Scores = model(*batch, forced)
        return scores

    def validate(self, model: Seq2Seq, data: PairData) -> Validation:
        pairs, device = some_of(data.valid), model.decoder.symbols.weight.device
        found = self.losses(model, pairs)
        written: list[Written] = []
        longest = max(len(target) for _, target in pairs) + MARGIN
        for batch in pair_batches(pairs):
            written += greedy(model.writer(batch.source.to(device), batch.source_lengths, longest))
        tokens = data.vocabs["target"].tokenizer.split
        targets = [tokens(pair.target) for pair in some_of(data.valid_pairs)]
        found |= error_rates(targets, [symbols_of(data.vocabs["target"], made.ids) for made in written])
        summary = f"valid word error {found['word_error_rate']:5.2f} %  symbols {found['symbol_error_rate']:5.2f} %"
        summary += f"  perplexity {found['perplexity']:6.3f}  gap {found['gap']:6.3f}"
        score = found["word_error_rate"] + TIE * found["loss"]
        return Validation(score, {f"valid_{name}": value for name, value in found.items()}, summary)

    def sample(self, model: Seq2Seq, data: PairData) -> str:
        source, lengths = padded([source for source, _ in data.valid[:4]])
        written = greedy(model.writer(source.to(model.decoder.symbols.weight.device), lengths))
        shown = zip(data.valid_pairs, written, strict=False)
        return "\n".join(f"{pair.source} → {data.vocabs['target'].decode(made.ids)}" for pair, made in shown)


def choose_symbol(lines: Sequence[str]) -> Symbol:
    """What stands between spaces, where that is single symbols; else words of sentences, or characters."""
    return "space" if between_spaces(lines[:1000]) else choose_token(lines)


def symbols_of(vocab: Vocab, ids: Iterable[int]) -> list[str]:
    return [vocab.tokens[k] for k in ids]


TASK = Seq2SeqTask
