"""Sequences from sequences: pairs, an encoder and a decoder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from recur.data.text import UNK, Pair, fit_lines, read_pairs
from recur.data.text.tokenizers import between_spaces, has_subwords
from recur.decoding import Written, greedy
from recur.i18n import Message
from recur.models import Scores, Seq2Seq
from recur.runs import Vocabs
from recur.tasks.contract import Baseline, Remark, Validation
from recur.tasks.examples import Shuffled, ShuffledBySize, padded, split
from recur.tasks.metrics import show
from recur.tasks.pairs import EncodedPair, PairBatch, PairData, longer_half, pair_batch, pair_size
from recur.tasks.places import Places
from recur.tasks.seq2seq.judge import SENTENCES, judge
from recur.tasks.seq2seq.options import Seq2SeqOptions, Symbol
from recur.tasks.seq2seq.plain import plain_models
from recur.tasks.tokens import choose_token, with_time_scale
from recur.tasks.writing import WritingTask, pair_batches
from recur.utils.types import Metrics

MARGIN = 5
"""Symbols beyond the longest target after which a sequence is wrong anyway, and cut while training: a network that has
not learned to stop would take most of its time to write."""

TIE = 1e-6
"""Of two models that are wrong equally often, the one with the lower loss is better."""

CUT = 0.02
"""The share of outputs from which on it is said that they were cut."""

LONG = 0.1
"""The share of training pairs that may be left out for the length of their targets; more are refused."""

MANY = 8000
"""Words from which on the choice among them is most of what a step computes."""


class Seq2SeqTask(WritingTask[Seq2SeqOptions, Seq2Seq]):
    name = "seq2seq"
    places = Places(vocab="source", recurrent="encoder", token="source_token", layers="encoder_layers")

    @property
    def curve(self) -> str:
        """BLEU of sentences; of other symbols the share of sequences that are wrong."""
        return "valid_bleu" if self.options.target_token in SENTENCES else "valid_sequence_error_rate"

    @classmethod
    def settle(cls, options: Seq2SeqOptions) -> Seq2SeqOptions:
        if options.source_token is None or options.target_token is None:
            pairs = read_pairs(options.texts)
            options = options.changed(
                source_token=options.source_token or choose_symbol([pair.source for pair in pairs]),
                target_token=options.target_token or choose_symbol([pair.target for pair in pairs]),
            )
        for kind in SENTENCES:
            if kind in (options.source_token, options.target_token):
                options = options.for_token(kind)
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
        source, target = vocabs["source"], vocabs["target"]
        lengths = map(len, target.encode_lines([pair.target for pair in train]))
        short = [pair for pair, n in zip(train, lengths, strict=True) if n <= o.longest]
        left_out = len(train) - len(short) if len(short) >= (1 - LONG) * len(train) else 0
        train = short if left_out else train
        ids = self.encode(train, source, target, training=True), self.encode(valid, source, target, training=False)
        return PairData(vocabs, *ids, train, valid, left_out)

    def batches(self, data: PairData) -> Shuffled[EncodedPair, PairBatch]:
        symbols = self.options.batch_symbols
        if symbols is None:
            return super().batches(data)
        return ShuffledBySize(data.train, symbols, self.options.seed, pair_batch, pair_size)

    def describe(self, data: PairData) -> str:
        sizes = " and ".join(
            f"{len(vocab):,} {name} symbols ({vocab.tokenizer.kind})" for name, vocab in data.vocabs.items()
        )
        said = f"{len(data.train):,} pairs to learn from, {len(data.valid):,} to measure on; {sizes}"
        if data.left_out:
            said += f"; {data.left_out:,} with more than {self.options.longest} target symbols (--longest) left out"
        K, kind = len(data.vocabs["target"]), data.vocabs["target"].tokenizer.kind
        if kind == "word" and K >= MANY:
            freed = "--target-token subword" if has_subwords() else "subwords (pip install 'recur[subword]')"
            rarer = f"--min-freq {self.options.min_freq + 1} or " if self.options.min_freq < 5 else ""
            return f"{said}; {K:,} targets are most of the work of a step: {rarer}{freed}"
        if kind == "word" and not has_subwords():
            return f"{said}; sentencepiece is not installed, so that words are symbols: pip install 'recur[subword]'"
        return said

    def plain_outputs(self, train: Sequence[Pair], vocabs: Vocabs, pairs: Sequence[Pair]) -> dict[str, Metrics]:
        """What models without a network make of pairs, by their names."""
        source, target = vocabs["source"].tokenizer, vocabs["target"].tokenizer
        references = [pair.target for pair in pairs]
        return {
            name: judge(target, references, [model(pair.source) for pair in pairs])
            for name, model in plain_models(train, source, target).items()
        }

    def baselines(self, data: PairData) -> list[Baseline]:
        found = self.plain_outputs(data.train_pairs, data.vocabs, data.valid_pairs)
        name = self.curve.removeprefix("valid_")
        return [
            Baseline(model, figures[name], {f"valid_{key}": value for key, value in figures.items()})
            for model, figures in found.items()
        ]

    def remarks(self, metrics: Metrics) -> Iterator[Remark]:
        if (cut := metrics.get("cut", 0.0)) > CUT:
            longer = f"--longest {2 * self.options.longest}"
            yield Remark(
                Message("{share} of what it wrote was cut before it had ended", share=show("cut", cut)), longer
            )

    def new_model(self, vocabs: Vocabs) -> Seq2Seq:
        source, target = vocabs["source"], vocabs["target"]
        copies = [target.ids.get(token, UNK) for token in source.tokens] if self.options.copy else None
        return Seq2Seq(len(source), len(target), self.options, copies)

    def score(self, model: Seq2Seq, batch: PairBatch, forced: Tensor | None = None) -> Scores:
        scores: Scores = model(*batch, forced)
        return scores

    def validate(self, model: Seq2Seq, data: PairData) -> Validation:
        pairs, device = data.valid, model.decoder.symbols.weight.device
        found = self.losses(model, pairs)
        written: list[Written] = []
        longest = max(len(target) for _, target in pairs) + MARGIN
        for batch in pair_batches(pairs):
            written += greedy(model.writer(batch.source.to(device), batch.source_lengths, longest))
        references = [pair.target for pair in data.valid_pairs]
        vocab = data.vocabs["target"]
        found |= judge(vocab.tokenizer, references, [vocab.decode(made.ids) for made in written])
        found["cut"] = sum(made.cut for made in written) / len(written)
        wrong = found["sequence_error_rate"]
        summary = f"valid sequences wrong {100 * wrong:5.2f} %  symbols {100 * found['symbol_error_rate']:5.2f} %"
        score = wrong + TIE * found["loss"]
        if "bleu" in found:
            summary = f"valid BLEU {found['bleu']:5.2f}  chrF {found['chrf']:5.2f}"
            score = TIE * found["loss"] - found["bleu"] / 100
        summary += f"  perplexity {found['perplexity']:6.3f}  gap {found['gap']:6.3f}"
        return Validation(score, {f"valid_{name}": value for name, value in found.items()}, summary)

    def sample(self, model: Seq2Seq, data: PairData) -> str:
        source, lengths = padded([source for source, _ in data.valid[:4]])
        written = greedy(model.writer(source.to(model.decoder.symbols.weight.device), lengths))
        shown = zip(data.valid_pairs, written, strict=False)
        return "\n".join(f"{pair.source} → {data.vocabs['target'].decode(made.ids)}" for pair, made in shown)


def choose_symbol(lines: Sequence[str]) -> Symbol:
    """What stands between spaces, where that is single symbols; else subwords of sentences, or characters. Without
    sentencepiece sentences are cut into words."""
    if between_spaces(lines[:1000]):
        return "space"
    kind = choose_token(lines)
    return "subword" if kind == "word" and has_subwords() else kind


TASK = Seq2SeqTask
