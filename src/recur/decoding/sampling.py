"""Sampling from a language model: temperature, top-k, top-p, min-p.

Generation takes one step per token in constant memory: the state is all that is kept of the past. Several samples run
as one batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from recur.data.text import BOS, PAD, UNK, Vocab
from recur.errors import OptionError, RunError, TextError
from recur.i18n import Message
from recur.models import LanguageModel, LanguageModelOutput, State
from recur.options import Count, Fraction, Natural, Positive, Range, Seed, checked

FORBIDDEN_TOKENS = (UNK, PAD, BOS)
"""Tokens that are never generated: <unk>, <pad> and <bos>."""


def forbidden_tokens(model: LanguageModel) -> list[int]:
    """Return the tokens that a model never generates: special ones, and those that no text has."""
    return sorted({*FORBIDDEN_TOKENS, *model.never})


_TOP = Annotated[float, Range("lie in (0, 1]", 0, 1, low_excluded=True)]


@dataclass(frozen=True)
class SamplingOptions:
    """Options for drawing the next token."""

    temperature: float = 1.0
    top_k: int = 0
    """Draw among the k most likely tokens; 0 for all."""
    top_p: float = 1.0
    """Draw among the most likely tokens whose probabilities sum to p."""
    min_p: float = 0.0
    """Draw among tokens with at least this fraction of the highest probability."""

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "temperature", checked("temperature", self.temperature, Positive))
        except OptionError as error:
            raise OptionError(Message("{error}; for the likeliest token take top_k=1", error=error)) from None
        for name, kind in (("top_k", Natural), ("top_p", _TOP), ("min_p", Fraction)):
            object.__setattr__(self, name, checked(name, getattr(self, name), kind))

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return probabilities (…, K) of logits (…, K); excluded tokens have probability 0."""
        return sampling_probabilities(logits, self.temperature, self.top_k, self.top_p, self.min_p)

    def draw(self, logits: Tensor, generator: torch.Generator | None) -> Tensor:
        plain = self.temperature == 1 and not self.top_k and self.top_p == 1 and not self.min_p
        p = (logits.softmax(-1) if plain else self.probabilities(logits)).cpu()
        try:
            return torch.multinomial(p, 1, generator=generator)[..., 0]
        except RuntimeError:
            if p.isfinite().all():
                raise
            raise RunError(
                Message("the model's output is not a number: its weights are too large, or damaged")
            ) from None


def sampling_probabilities(
    logits: Tensor, temperature: float | Tensor, top_k: int | Tensor, top_p: float | Tensor, min_p: float | Tensor
) -> Tensor:
    """Return the distribution (n, K) from which the next token is drawn, for logits (n, K).

    Options that differ by row have shape (n, 1).
    """
    logits = logits.double() / temperature
    top_k, top_p, min_p = (torch.as_tensor(each, device=logits.device) for each in (top_k, top_p, min_p))
    K = logits.shape[-1]
    if bool((top_k > 0).any()):
        wanted = torch.where(top_k > 0, top_k.clamp(max=K), K)
        ordered = logits.topk(int(wanted.max())).values
        least = ordered.gather(-1, (wanted - 1).expand(*logits.shape[:-1], 1))
        logits = logits.masked_fill(logits < least, -torch.inf)
    p = logits.softmax(-1)
    if bool((min_p > 0).any()):
        p = p.masked_fill(p < min_p * p.amax(-1, keepdim=True), 0)
    if bool((top_p < 1).any()):
        ordered, order = p.sort(descending=True, stable=True)
        before = ordered.cumsum(-1) - ordered
        kept = (before < top_p * ordered.sum(-1, keepdim=True)) | (top_p >= 1)
        p = p.masked_fill(~kept.gather(-1, order.argsort(-1)), 0)
    return p / p.sum(-1, keepdim=True)


@torch.no_grad()
def read_prompt(
    model: LanguageModel, ids: list[int], state: State | None = None, rows: int = 1
) -> tuple[Tensor, State]:
    """Read a prompt. Return the logits (rows, K) after it and the state; all rows read the same prompt."""
    x = torch.tensor([ids], device=model.device).expand(rows, -1)
    predicted: LanguageModelOutput = model(x, state)
    return predicted.logits[:, -1], predicted.state


def encode_prompt(vocab: Vocab, prompt: str) -> list[int]:
    """Return the ids of a prompt; raise TextError if it has unknown tokens."""
    unknown = vocab.unknown_tokens(prompt)
    if unknown and vocab.tokenizer.kind != "subword":
        named = ", ".join(repr(token) for token in list(unknown)[:5])
        raise TextError(f"the prompt has tokens that are not in the vocabulary: {named}")
    return [int(k) for k in vocab.encode(prompt)]


def make_generator(seed: int | None) -> torch.Generator:
    """Return a random generator with this seed; without a seed, with a random one."""
    generator = torch.Generator()
    generator.manual_seed(checked("seed", seed, Seed)) if seed is not None else generator.seed()
    return generator


@torch.no_grad()
def generate(
    model: LanguageModel,
    lead: list[int],
    length: int,
    choice: SamplingOptions,
    samples: int = 1,
    seed: int | None = None,
) -> Iterator[list[int]]:
    """Yield one token per sample and step, `length` steps, after reading `lead`."""
    length, samples = checked("length", length, Natural), checked("samples", samples, Count)
    model.eval()
    generator = make_generator(seed)
    logits, state = read_prompt(model, lead, rows=samples)
    yield from continue_text(model, logits, state, length, choice, generator)


@torch.no_grad()
def continue_text(
    model: LanguageModel, logits: Tensor, state: State, length: int, choice: SamplingOptions, generator: torch.Generator
) -> Iterator[list[int]]:
    """Yield one token per row and step from logits (rows, K) and a state."""
    never = forbidden_tokens(model)
    for left in range(length, 0, -1):
        logits[:, never] = -torch.inf
        tokens = choice.draw(logits, generator)
        yield tokens.tolist()
        if left > 1:
            logits, state = model.step(tokens.to(model.device), state)
