"""Sequence to sequence: pairs, an encoder–decoder; error rates, BLEU and chrF."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from recur.baselines.transducers import SENTENCES, translation_baselines
from recur.data.batching import Shuffled, ShuffledBySize, padded
from recur.data.text import UNK, Pair, Subwords, Tokenizer, Words, fit_lines, read_pairs
from recur.data.text.tokenizers import between_spaces, has_subwords
from recur.decoding import DecodedSequence, greedy_decode
from recur.i18n import Message
from recur.models import DecoderScores, Seq2Seq
from recur.runs import Vocabs
from recur.tasks.common.batching import (
    EncodedPair,
    PairBatch,
    PairData,
    choose_token,
    max_steps,
    pair_batch,
    pair_size,
    with_time_scale,
)
from recur.tasks.common.contract import Baseline, PretrainedSlots, Remark, Validation
from recur.tasks.common.metrics import bleu, chrf, edits_per_symbol, error_rates, format_metric, mteval_words
from recur.tasks.common.splits import reading_of, split
from recur.tasks.common.teacher_forcing import DecoderTask, pair_batches
from recur.tasks.seq2seq.options import Seq2SeqOptions, Symbol
from recur.utils.types import Metrics


def judge(tokenizer: Tokenizer, references: Sequence[str], outputs: Sequence[str]) -> Metrics:
    """Return error rates of output texts; for sentences also BLEU, chrF and the word error rate.

    Case is ignored if the tokenizer lower-cases.
    """
    if isinstance(tokenizer, Words) and tokenizer.lower:
        references, outputs = ([text.lower() for text in side] for side in (references, outputs))
    split = tokenizer.split_lines if isinstance(tokenizer, Subwords) else lambda texts: map(tokenizer.split, texts)
    found: Metrics = error_rates(*(list(split(side)) for side in (references, outputs)))
    if tokenizer.kind in SENTENCES:
        words = ([mteval_words(text) for text in side] for side in (references, outputs))
        found["word_error_rate"] = edits_per_symbol(*words)
        found |= {"bleu": bleu(references, outputs), "chrf": chrf(references, outputs)}
    return found


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


class Seq2SeqTask(DecoderTask[Seq2SeqOptions, Seq2Seq]):
    name = "seq2seq"
    places = PretrainedSlots(vocab="source", recurrent="encoder", token="source_token", layers="num_encoder_layers")

    @property
    def curve(self) -> str:
        """BLEU for sentences; else the share of wrong sequences."""
        return "valid_bleu" if self.options.target_token in SENTENCES else "valid_sequence_error_rate"

    @classmethod
    def settle(cls, options: Seq2SeqOptions) -> Seq2SeqOptions:
        if options.source_token is None or options.target_token is None:
            pairs = read_pairs(options.texts, reading_of(options))
            options = options.changed(
                source_token=options.source_token or choose_symbol([pair.source for pair in pairs]),
                target_token=options.target_token or choose_symbol([pair.target for pair in pairs]),
            )
        for kind in SENTENCES:
            if kind in (options.source_token, options.target_token):
                options = options.for_token(kind)
        if options.recurrence == "output":
            options = options.with_defaults(condition="input")
        return super().settle(with_time_scale(options, lambda: map(max_steps, cls(options).read().train)))

    def read(self, vocabs: Vocabs | None = None) -> PairData:
        o = self.options
        train, valid, _ = split(o, read_pairs, self.new_reading())
        if vocabs is None:
            sources, targets = (pair.source for pair in train), (pair.target for pair in train)
            vocabs = {
                "source": fit_lines(sources, o.source_token or "char", **o.vocab_options()),
                "target": fit_lines(targets, o.target_token or "char", **o.vocab_options()),
            }
        source, target = vocabs["source"], vocabs["target"]
        lengths = map(len, target.encode_lines([pair.target for pair in train]))
        short = [pair for pair, n in zip(train, lengths, strict=True) if n <= o.max_length]
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
        said = f"{len(data.train):,} training pairs, {len(data.valid):,} validation pairs; {sizes}"
        if data.left_out:
            said += (
                f"; {data.left_out:,} with more than {self.options.max_length} target symbols (--max-length) left out"
            )
        K, kind = len(data.vocabs["target"]), data.vocabs["target"].tokenizer.kind
        if kind == "word" and K >= MANY:
            freed = "--target-token subword" if has_subwords() else "subwords (pip install 'recur[subword]')"
            rarer = f"--min-freq {self.options.min_freq + 1} or " if self.options.min_freq < 5 else ""
            return f"{said}; {K:,} targets are most of the work of a step: {rarer}{freed}"
        if kind == "word" and not has_subwords():
            return f"{said}; sentencepiece is not installed, so that words are symbols: pip install 'recur[subword]'"
        return said

    def baseline_scores(self, train: Sequence[Pair], vocabs: Vocabs, pairs: Sequence[Pair]) -> dict[str, Metrics]:
        """Return the outputs of the baselines by name."""
        source, target = vocabs["source"].tokenizer, vocabs["target"].tokenizer
        references = [pair.target for pair in pairs]
        return {
            name: judge(target, references, [model(pair.source) for pair in pairs])
            for name, model in translation_baselines(train, source, target).items()
        }

    def baselines(self, data: PairData) -> list[Baseline]:
        found = self.baseline_scores(data.train_pairs, data.vocabs, data.valid_pairs)
        name = self.curve.removeprefix("valid_")
        return [
            Baseline(model, figures[name], {f"valid_{key}": value for key, value in figures.items()})
            for model, figures in found.items()
        ]

    def remarks(self, metrics: Metrics) -> Iterator[Remark]:
        if (cut := metrics.get("cut", 0.0)) > CUT:
            longer = f"--max-length {2 * self.options.max_length}"
            yield Remark(
                Message("{share} of the outputs were truncated before the end symbol", share=format_metric("cut", cut)),
                longer,
            )

    def new_model(self, vocabs: Vocabs) -> Seq2Seq:
        source, target = vocabs["source"], vocabs["target"]
        copies = [target.ids.get(token, UNK) for token in source.tokens] if self.options.copy else None
        return Seq2Seq(len(source), len(target), self.options, copies, target.writable().tolist())

    def score(self, model: Seq2Seq, batch: PairBatch, forced: Tensor | None = None) -> DecoderScores:
        scores: DecoderScores = model(*batch, forced)
        return scores

    def validate(self, model: Seq2Seq, data: PairData) -> Validation:
        pairs, device = data.valid, model.decoder.symbols.weight.device
        found = self.losses(model, pairs)
        written: list[DecodedSequence] = []
        longest = max(len(target) for _, target in pairs) + MARGIN
        for batch in pair_batches(pairs):
            written += greedy_decode(model.writer(batch.source.to(device), batch.source_lengths, longest))
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
        written = greedy_decode(model.writer(source.to(model.decoder.symbols.weight.device), lengths))
        shown = zip(data.valid_pairs, written, strict=False)
        return "\n".join(f"{pair.source} → {data.vocabs['target'].decode(made.ids)}" for pair, made in shown)


def choose_symbol(lines: Sequence[str]) -> Symbol:
    """Return `space` for single symbols between spaces, else `subword` for sentences, or `char`.

    Without sentencepiece, sentences are split into words.
    """
    if between_spaces(lines[:1000]):
        return "space"
    kind = choose_token(lines)
    return "subword" if kind == "word" and has_subwords() else kind


TASK = Seq2SeqTask
