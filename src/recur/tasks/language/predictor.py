"""Trained language model: generation, evaluation, and single steps."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recur.baselines.text_ngrams import evaluate_ngram, fit_best_ngram
from recur.data.text import Corpus, Vocab
from recur.data.text.corpus import normalised
from recur.data.text.stream import Floats, Ids
from recur.data.text.tokenizers import without_leading_marks
from recur.decoding import SamplingOptions, beam_continuations, encode_prompt, generate, read_prompt
from recur.errors import OptionError, TextError
from recur.i18n import Message
from recur.models import LanguageModel, State
from recur.options import Natural, checked
from recur.tasks.common.contract import Task
from recur.tasks.common.metrics import perplexity
from recur.tasks.common.predictor import PredictionInputs, Predictor, read_inputs
from recur.tasks.language import adapting
from recur.tasks.language.data import LanguageData, corpora, first_input, in_reading_order, place_of, test_text
from recur.tasks.language.evaluation import log_probabilities, mean_loss
from recur.tasks.language.options import LanguageOptions
from recur.utils.types import JsonObject


class Language(Predictor[LanguageModel]):
    """Trained language model: its run, vocabulary and weights."""

    task: Task[LanguageOptions, LanguageData, LanguageModel, Any]

    @property
    def options(self) -> LanguageOptions:
        return self.task.options

    @property
    def vocab(self) -> Vocab:
        return self.run.vocab

    @property
    def backward(self) -> bool:
        """Whether the model reads and generates from the end of a text."""
        return self.options.direction == "backward"

    def stream(
        self, prompt: str = "", length: int = 200, stop: str = "", seed: int | None = None, **choice: Any
    ) -> Iterator[str]:
        """A continuation, piece by piece as it is drawn; ends before `stop`, if that is given and comes up.

        A model that reads from the end writes what leads up to the prompt: each piece stands before those that came.
        """
        checked("stop", stop, str)
        if self.backward:
            yield from self._stream_backward(prompt, length, stop, seed, SamplingOptions(**choice))
            return
        whole = ""
        held = len(stop) - 1 if stop else 0  # this much may still turn out to begin the stop
        shown = 0
        ids: list[int] = []
        for (token,) in generate(self.model, self._lead(prompt), length, SamplingOptions(**choice), seed=seed):
            ids.append(token)
            whole = self._continued(prompt, ids)
            if stop and stop in whole:
                yield whole[shown : whole.index(stop)]
                return
            ready = max(len(whole) - held, shown)
            yield whole[shown:ready]
            shown = ready
        yield whole[shown:]

    def _stream_backward(
        self, prompt: str, length: int, stop: str, seed: int | None, choice: SamplingOptions
    ) -> Iterator[str]:
        held = len(stop) - 1 if stop else 0
        shown, ids = "", list[int]()
        before = ""  # what stands before that
        for (token,) in generate(self.model, self._lead(prompt), length, choice, seed=seed):
            ids.append(token)
            whole = self._continued(prompt, ids)
            before = whole[: len(whole) - len(shown)]
            if stop and stop in whole:
                yield before.rpartition(stop)[2]
                return
            ready = without_leading_marks(before[held:])  # a mark waits for its letter
            if not ready.startswith("\ufffd"):  # nor is half a character one
                yield ready
                shown = ready + shown
                before = before[: len(before) - len(ready)]
        yield without_leading_marks(before)

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
        """Continuations of a prompt, drawn as one batch; with `width`, the likeliest that beam search finds.

        Of a model that reads from the end, texts that lead up to the prompt, which is then the end of each.
        """
        checked("stop", stop, str)
        if checked("width", width, Natural):
            found = beam_continuations(self.model, self._lead(prompt), length, width)
            return [self._whole_letters(self._continued(prompt, ids)) for ids, _ in found]
        columns = list(generate(self.model, self._lead(prompt), length, SamplingOptions(**choice), samples, seed))
        texts = [self._continued(prompt, [tokens[k] for tokens in columns]) for k in range(samples)]
        if stop:
            texts = [text.rpartition(stop)[2] if self.backward else text.partition(stop)[0] for text in texts]
        return [self._whole_letters(text) for text in texts]

    def _predict(
        self, lines: Iterable[str], *, length: int = 200, samples: int = 1, stop: str = "\n", **options: Any
    ) -> Iterator[JsonObject]:
        """Yield a continuation of each line, up to `stop` or the number of tokens; several with `samples`."""
        known = {"seed", "width", *SamplingOptions.__dataclass_fields__}
        self.refuse({name: value for name, value in options.items() if name not in known})
        for line in lines:
            made = self.generate(line, length, samples=samples, stop=stop, **options)
            yield {"input": line, "output": made[0], "nbest": [{"output": text} for text in made]}

    def probabilities(self, given: Any) -> Any:
        """Return the probability of every next token of a text, or a list of them for several."""
        one, several = read_inputs(given, files=False)
        logits = (read_prompt(self.model, self._lead(text))[0][0] for text in PredictionInputs(several, files=False))
        found = [dict(zip(self.vocab.tokens, row.softmax(-1).tolist(), strict=True)) for row in logits]
        return found[0] if one else found

    def _evaluate(self, texts: Sequence[str] | None, **options: Any) -> JsonObject:
        """Perplexity and its kin on texts, and beside them the best n-gram of what it learned from.

        `ngrams=False` leaves the n-gram away; `progress` is called with the number of characters done. `cache` (of so
        many tokens) and `dynamic` add rows of the model as it goes on learning, by settings of the validation text.
        """
        progress, ngrams = options.pop("progress", None), options.pop("ngrams", True)
        cache, dynamic = checked("cache", options.pop("cache", 0), Natural), options.pop("dynamic", False)
        self.refuse(options)
        text = Corpus.of(*texts, reading=self.new_reading()) if texts else test_text(self.options)
        row = self.measure(text, progress)
        if cache or dynamic:
            row["beside"] = [self._row(*found, text) for found in self._adapted(text, cache, dynamic)]
        if ngrams and self.has_training_texts():
            train, valid, _ = corpora(self.options)
            ngram, _ = fit_best_ngram(self.vocab, train, valid, self.backward)
            beside = evaluate_ngram(f"{ngram.order}-gram of the same text", ngram, text)
            row["beside"] = [*row.get("beside", ()), beside]
        return row

    def _adapted(self, text: Corpus, cache: int, dynamic: bool) -> Iterator[tuple[str, float, int, float]]:
        """Names, losses, tokens and seconds of the model with a cache, learning as it reads, and with both."""
        if self.options.time_input or self.options.softmax == "adaptive":
            raise OptionError("--cache and --dynamic are for models of a full softmax that do not read the time")
        if not self.has_training_texts():
            raise OptionError("--cache and --dynamic take settings of the training and validation texts: they are gone")
        train, valid, _ = corpora(self.options)
        (x, y), (vx, vy) = self._ids(text), self._ids(valid)
        read, tried = adapting.read_static(self.model, x, y), adapting.read_static(self.model, vx, vy)
        if cache:
            begun, chosen = time.perf_counter(), adapting.choose_cache(tried, vy, cache)
            loss = -float(adapting.with_cache(read, y, chosen).mean())
            yield f"… with {chosen}", loss, len(y), time.perf_counter() - begun
        if dynamic:
            sizes = adapting.gradient_sizes(self.model, self._ids(train)[1])
            few = adapting.TRIED
            how = adapting.choose_dynamic(self.model, vx[:few], vy[:few], sizes)
            begun = time.perf_counter()
            read = adapting.read_dynamic(self.model, x, y, how, sizes)
            yield f"… with {how}", -float(read.logp.mean()), len(y), time.perf_counter() - begun
            if cache:
                tried = adapting.read_dynamic(self.model, vx, vy, how, sizes)
                chosen = adapting.choose_cache(tried, vy, cache)
                loss = -float(adapting.with_cache(read, y, chosen).mean())
                yield f"… with both, {chosen}", loss, len(y), time.perf_counter() - begun

    def _ids(self, text: Corpus) -> tuple[Tensor, Tensor]:
        """Return the inputs and the targets of a text, (N,) each, on the model's device."""
        ids = self._scored(self.vocab.encode_corpus(text), text.name)
        y = torch.from_numpy(np.asarray(ids, np.int64).copy()).to(self.model.device)
        return torch.cat([y.new_tensor([first_input(self.vocab)]), y[:-1]]), y

    def _scored(self, ids: Ids, name: str = "the text") -> Ids:
        """Return the ids of a text that have a probability, in reading order."""
        if not len(ids):
            raise TextError(f"{name} has no token to measure")
        found = in_reading_order(self.vocab.without_unseen(ids), self.options)
        if not len(found):
            raise TextError(f"no token of {name} is in the vocabulary of {self.run.path}")
        return found

    def measure(self, text: Corpus, progress: Callable[[int], object] | None = None) -> JsonObject:
        """Return perplexity and related metrics, with the state carried through the whole text.

        Symbols that were never seen in training are left out and counted (`unseen`).
        """
        whole = self.vocab.encode_corpus(text)
        ids = self._scored(whole, text.name)
        share = text.characters / len(ids)
        begun = time.perf_counter()
        loss = mean_loss(
            self.model,
            ids,
            first_input(self.vocab),
            progress=None if progress is None else lambda n: progress(round(n * share)),
            at=place_of(text, len(ids), self.options),
        )
        row = self._row(str(self.run.path), loss, len(ids), time.perf_counter() - begun, text)
        return row | ({"unseen": len(whole) - len(ids)} if len(whole) > len(ids) else {})

    def _row(self, name: str, loss: float, tokens: int, seconds: float, text: Corpus) -> JsonObject:
        bits = loss / math.log(2)
        return {
            "model": name,
            "perplexity": perplexity(loss),
            "bits_per_token": bits,
            "bits_per_character": bits * tokens / text.characters,
            "tokens": tokens,
            "oov": sum(sum(self.vocab.unknown_tokens(piece).values()) for piece in text.pieces()),
            "tokens_per_second": tokens / seconds,
        }

    def perplexity(self, text: str | Corpus) -> float:
        """Return the perplexity of a text, with the state carried through it."""
        ids = self.vocab.encode_corpus(text) if isinstance(text, Corpus) else self.vocab.encode(normalised(text))
        return perplexity(mean_loss(self.model, self._scored(ids), first_input(self.vocab)))

    def logprobs(self, ids: Ids) -> Floats:
        """log P of every token of a text's ids given those read before it, in the order of reading.

        Reading starts after a line end, or after <bos> for a model of one line; a model that reads from the end starts
        behind the text. Ids that the model cannot write, such as <unk> of a model that never read one, are neither read
        nor scored: their entry is NaN.
        """
        if not len(ids):
            raise TextError("there is no token to measure")
        read = in_reading_order(ids, self.options)
        values = np.full(len(read), np.nan)
        values[self.vocab.writable()[read]] = log_probabilities(self.model, self._scored(ids), first_input(self.vocab))
        return values

    def logprob(self, text: str) -> float:
        """Return log P of a text, in nats; symbols that were never seen in training are left out."""
        return sum(logp for _, logp in self.token_logprobs(text) if logp is not None)

    def token_logprobs(self, text: str) -> list[tuple[str, float | None]]:
        """Return the tokens of a text in reading order, each with log P given those before it.

        A symbol that was never seen in training has no probability: None.
        """
        text = normalised(text)
        ids = self.vocab.encode(text)
        read, values = in_reading_order(ids, self.options), self.logprobs(ids).tolist()
        can, names = self.vocab.writable(), self.vocab.named(text, ids)
        names = names[::-1] if self.backward else names
        return [(name, value if can[k] else None) for name, k, value in zip(names, read, values, strict=True)]

    def step(self, token: str | int, state: State | None = None) -> tuple[dict[str, float], State]:
        """Read one token; return the probability of every next token, and the state for the next call."""
        k = token if isinstance(token, int) else self.vocab.ids.get(token, -1)
        if not 0 <= k < len(self.vocab):
            raise OptionError(Message("token {token} is not in the vocabulary", token=repr(token)))
        logits, state = read_prompt(self.model, [k], state)
        return dict(zip(self.vocab.tokens, logits[0].softmax(-1).tolist(), strict=True)), state

    def _lead(self, prompt: str) -> list[int]:
        ids = encode_prompt(self.vocab, prompt)
        return [first_input(self.vocab), *(ids[::-1] if self.backward else ids)]

    def _whole_letters(self, text: str) -> str:
        return without_leading_marks(text) if self.backward else text

    def _continued(self, prompt: str, ids: list[int]) -> str:
        """The text of what follows a prompt, or leads up to it; of words and subwords, with the space between."""
        ids = ids[::-1] if self.backward else ids
        if self.vocab.tokenizer.kind == "char":
            return self.vocab.decode(ids)
        if self.backward:
            behind = [int(k) for k in self.vocab.encode(prompt)]
            whole = self.vocab.decode([*ids, *behind])
            return whole[: len(whole) - len(self.vocab.decode(behind))]
        before = [int(k) for k in self.vocab.encode(prompt)]
        return self.vocab.decode([*before, *ids])[len(self.vocab.decode(before)) :]


PREDICTOR = Language
