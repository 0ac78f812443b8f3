"""Language models: which token of a text comes next."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from recur.decode import Choice, beam, encode_prompt, generate, read
from recur.errors import OptionError, TextError
from recur.models import LanguageModel, LanguageOptions
from recur.text import Batch, Corpus, Stream
from recur.train.config import Config
from recur.train.data import VOCAB_OPTIONS, Data, corpora, first_input, load_data, make_stream
from recur.train.machine import pick_device
from recur.train.measure import free_running_gap, mean_loss, perplexity
from recur.train.tasks.task import Learned, Measured, Moment, Opened, Task, Vocabs

if TYPE_CHECKING:
    from recur.train.run import Run

MANY = 50_000
"""Validation texts of more tokens are measured in ten lanes while training."""


class LanguageTask(Task):
    """One long text, cut into windows; or lines, each with its label."""

    title = "the task language"
    verb = "sample"
    reads = frozenset(
        {*LanguageOptions.__dataclass_fields__, *VOCAB_OPTIONS}
        | {"partition", "window", "jitter", "baseline", "strict"}
    )

    @classmethod
    def of(cls, config: Config) -> Task:
        if config.context is None:
            return cls(config)
        from recur.train.tasks.labelled import LabelledTask

        return LabelledTask(config)

    def read(self, vocabs: Vocabs | None = None) -> Data:
        return load_data(self.config, vocabs["vocab"] if vocabs else None)

    def about(self, data: Data) -> str:
        text = data.train_text
        return f"{text.name}: {text.characters:,} characters to learn from ({text.notes}), {len(data.vocab):,} tokens"

    def baseline(self, data: Data) -> tuple[float, str] | None:
        from recur.train.baseline import best_ngram

        if not self.config.baseline:
            return None
        model, found = best_ngram(data.vocab, data.train_text, data.valid_text)
        return found, f"the n-gram to beat: order {model.order}, Kneser–Ney, valid perplexity {found:.3f}"

    def new_model(self, vocabs: Vocabs) -> LanguageModel:
        return LanguageModel(len(vocabs["vocab"]), options_of(self.config))

    def batches(self, data: Data) -> Stream:
        return make_stream(self.config, data)

    def learn(self, model: LanguageModel, batch: Batch, state: Any, moment: Moment) -> Learned:
        device = model.bias.device
        x, y = (torch.from_numpy(part).to(device, non_blocking=True) for part in (batch.x, batch.y))
        predicted = model(x, None if batch.fresh.all() else state)
        return Learned(
            loss=model.loss(predicted, y),
            predictions=y.numel(),
            backend=predicted.trace[0].backend,
            penalty=predicted.penalty,
            state=model.detached(predicted.state) if self.config.partition == "sequential" else None,
            rate=y.shape[1] / self.config.window if self.config.jitter else 1.0,
        )

    def limit(self, vocabs: Vocabs) -> float:
        return 10 * math.log(max(len(vocabs["vocab"]), 3))

    def measure(self, model: LanguageModel, data: Data) -> Measured:
        lanes = 10 if len(data.valid) > MANY else 1
        loss = mean_loss(model, data.valid, first_input(data.vocab), lanes)
        metrics = {"valid_loss": loss, "valid_perplexity": perplexity(loss)}
        if not math.isnan(gap := free_running_gap(model, data.valid)):
            metrics["valid_gap"] = gap
        said = f"valid perplexity {perplexity(loss):8.3f}"
        if data.vocab.tokenizer.kind == "char":
            metrics["valid_bits_per_character"] = loss / math.log(2)
            said += f"  {loss / math.log(2):.3f} bits/char"
        return Measured(loss, metrics, said)

    def sample(self, model: LanguageModel, data: Data) -> str:
        drawn = generate(model, [first_input(data.vocab)], 120, Choice(temperature=0.8), seed=0)
        return data.vocab.decode([tokens[0] for tokens in drawn])

    def open(self, run: Run, device: str = "cpu", also: Sequence[Run] = ()) -> Language:
        if also:
            raise OptionError("language models are measured one by one, not as one")
        return Language(run, device)


def options_of(config: Config) -> LanguageOptions:
    return LanguageOptions(**{name: getattr(config, name) for name in LanguageOptions.__dataclass_fields__})


class Language(Opened):
    """A trained language model: its run, vocabulary and weights."""

    def __init__(self, run: Run, device: str = "cpu") -> None:
        self.run, self.vocab = run, run.vocab
        self.model = run.load_model(str(pick_device(device)))

    def __repr__(self) -> str:
        return f"Language({str(self.run.path)!r}, {self.run.config.cell}, {len(self.vocab)} tokens)"

    def stream(
        self, prompt: str = "", length: int = 200, stop: str = "", seed: int | None = None, **choice: Any
    ) -> Iterator[str]:
        """A continuation, piece by piece as it is drawn; ends before `stop`, if that is given and comes up."""
        whole = ""
        held = len(stop) - 1 if stop else 0  # this much may still turn out to begin the stop
        shown = 0
        ids: list[int] = []
        for (token,) in generate(self.model, self._lead(prompt), length, Choice(**choice), seed=seed):
            ids.append(token)
            whole = self._continued(prompt, ids)
            if stop and stop in whole:
                yield whole[shown : whole.index(stop)]
                return
            ready = max(len(whole) - held, shown)
            yield whole[shown:ready]
            shown = ready
        yield whole[shown:]

    def generate(
        self,
        prompt: str = "",
        length: int = 200,
        *,
        samples: int = 1,
        stop: str = "",
        seed: int | None = None,
        width: int = 0,
        **choice: Any,
    ) -> list[str]:
        """Continuations of a prompt, drawn as one batch; with `width`, the likeliest that beam search finds."""
        if width:
            found = beam(self.model, self._lead(prompt), length, width)
            return [self._continued(prompt, ids) for ids, _ in found]
        columns = list(generate(self.model, self._lead(prompt), length, Choice(**choice), samples, seed))
        texts = [self._continued(prompt, [tokens[k] for tokens in columns]) for k in range(samples)]
        return [text.partition(stop)[0] if stop else text for text in texts]

    def evaluate(self, texts: list[str] | None = None, **options: Any) -> dict[str, Any]:
        for name in options:
            raise OptionError(f"--{name.replace('_', '-')} is not for language models")
        return self.measure(Corpus.of(*texts) if texts else corpora(self.run.config)[2])

    def measure(self, text: Corpus, heard: Callable[[int], object] | None = None) -> dict[str, Any]:
        """Perplexity and its kin, the state carried through all of a text; `heard` is told of characters done."""
        ids = self.vocab.encode_corpus(text)
        if not len(ids):
            raise OptionError(f"{text.name} has no token to measure on")
        share = text.characters / len(ids)
        begun = time.perf_counter()
        loss = mean_loss(
            self.model, ids, first_input(self.vocab), heard=None if heard is None else lambda n: heard(round(n * share))
        )
        seconds = time.perf_counter() - begun
        bits = loss / math.log(2)
        return {
            "model": str(self.run.path),
            "perplexity": perplexity(loss),
            "bits_per_token": bits,
            "bits_per_character": bits * len(ids) / text.characters,
            "tokens": len(ids),
            "oov": sum(sum(self.vocab.unknown_tokens(piece).values()) for piece in text.pieces()),
            "tokens_per_second": len(ids) / seconds,
        }

    def perplexity(self, text: str | Corpus) -> float:
        """Of all tokens of a text, the state carried through it."""
        ids = self.vocab.encode(text) if isinstance(text, str) else self.vocab.encode_corpus(text)
        if not len(ids):
            raise TextError("there is no token to measure on")
        return perplexity(mean_loss(self.model, ids, first_input(self.vocab)))

    def step(self, token: str | int, state: Any = None) -> tuple[dict[str, float], Any]:
        """One token in; the probability of every next one, and the state to hand back in with it."""
        k = token if isinstance(token, int) else self.vocab.ids.get(token, -1)
        if not 0 <= k < len(self.vocab):
            raise OptionError(f"token {token!r} is not in the vocabulary")
        logits, state = read(self.model, [k], state)
        return dict(zip(self.vocab.tokens, logits[0].softmax(-1).tolist(), strict=True)), state

    def _lead(self, prompt: str) -> list[int]:
        return [first_input(self.vocab), *encode_prompt(self.vocab, prompt)]

    def _continued(self, prompt: str, ids: list[int]) -> str:
        """The text of what follows a prompt; of words and subwords, with the space that belongs between."""
        if self.vocab.tokenizer.kind == "char":
            return self.vocab.decode(ids)
        before = [int(k) for k in self.vocab.encode(prompt)]
        return self.vocab.decode([*before, *ids])[len(self.vocab.decode(before)) :]


TASK = LanguageTask
