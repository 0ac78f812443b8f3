"""Forget gates along one sentence, token by token: where a network lets go of what it read.

A sentence that turns, such as "slow at first, but …" or 「开头平淡，但是……」, is the one to look at: a network that
knows that what follows counts more closes its gate at the turn.
"""

from __future__ import annotations

import re
from typing import Any

import torch

from recur.layers import Recurrent
from recur.probes.finding import Finding, Level, Measurement
from recur.probes.gates import activations
from recur.probes.subject import Subject
from recur.tasks.classify.predictor import TextClassifier
from recur.tasks.language.data import valid_text
from recur.tasks.language.predictor import Language
from recur.tasks.predictor import Predictor
from recur.tasks.tag.predictor import TextTagger
from recur.wording import said

TURNS = re.compile(r"\b(but|however|although|yet|aber|doch|jedoch)\b|但是|然而|不过|可是|却|但", re.IGNORECASE)
"""Words after which a sentence turns."""
SENTENCE = re.compile(r"[^.!?。！？\n]{8,160}[.!?。！？]?")
READ = 200_000
"""Characters of a text in which such a sentence is looked for."""
MOST = 120
"""Tokens that are shown."""


def turning_sentence(text: str) -> str:
    """The first that turns, or the first of all."""
    found = [match.group().strip() for match in SENTENCE.finditer(text)]
    return next(
        (one for one in found if TURNS.search(one)), found[0] if found else text.strip().partition("\n")[0][:80]
    )


def own_sentence(predictor: Predictor[Any]) -> str:
    """Of what the run is validated on."""
    if isinstance(predictor, Language):
        text = ""
        for piece in valid_text(predictor.options).pieces():
            text += piece
            if len(text) > READ:
                break
        return turning_sentence(text)
    data = predictor.task.read(predictor.run.vocabs)
    lines = [example.text for example in data.valid] if isinstance(predictor, TextClassifier) else [
        " ".join(sentence.words) for sentence in data.valid_sentences
    ]  # fmt: skip
    short = [line for line in lines if 20 <= len(line) <= 160] or lines
    return next((line for line in short if TURNS.search(line)), short[0])


def sentence(predictor: Predictor[Any], subject: Subject, text: str = "") -> Measurement | None:
    """The mean of the forget gate at each token; None for a model that reads no sentences, or a cell without one."""
    gate = subject.net.cell.forget_gate
    if gate is None or not isinstance(predictor, Language | TextClassifier | TextTagger):
        return None
    text = text or own_sentence(predictor)
    tokens, net, x = _read(predictor, subject.net, text)
    if x.shape[1] < 4:
        return None
    found = activations(Subject(net, net, x).layers[0]).get(gate)
    if found is None:
        return None
    values = found.values.mean(-1).tolist()  # from the second token on: the first had nothing to forget
    tokens = tokens[1 : 1 + len(values)]
    numbers = {"tokens": tokens[:MOST], "values": values[:MOST], "gate": gate, "sentence": text}
    turn = TURNS.search(text)
    mean = sum(values) / len(values)
    least = min(range(len(values)), key=lambda k: values[k])
    verdict = said(
        "gate {gate} is {mean:.2f} on average along “{text}” and most shut at {token!r}, {value:.2f}",
        gate=gate, mean=mean, text=text if len(text) < 60 else text[:57] + "…",
        token=tokens[least], value=values[least],
    )  # fmt: skip
    if turn is not None:
        at = _token_at(tokens, turn.group())
        if at is not None:
            verdict = said(
                "{first}; at the turn, {token!r}, it is {value:.2f}", first=verdict, token=tokens[at], value=values[at]
            )
    return Measurement(Finding("sentence", Level.OK, values[least], mean, verdict), numbers)


def _token_at(tokens: list[str], turn: str) -> int | None:
    """Where the turn begins: its word, or its first letter followed by the others."""
    for k, token in enumerate(tokens):
        if token.strip().lower() == turn.lower() or "".join(tokens[k : k + len(turn)]).lower() == turn.lower():
            return k
    return None


def _read(predictor: Predictor[Any], net: Recurrent, text: str) -> tuple[list[str], Recurrent, torch.Tensor]:
    """The tokens of a sentence, and what the network reads of them, (1, T, D)."""
    seen: list[torch.Tensor] = []
    hook = net.register_forward_pre_hook(lambda _, args: seen.append(args[0].detach()))
    try:
        with torch.no_grad():
            if isinstance(predictor, Language):
                ids = torch.from_numpy(predictor.vocab.encode(text).astype("int64")).to(predictor.device)
                predictor.model(ids[None])
            else:
                predictor.predict(text)
    finally:
        hook.remove()
    vocab = predictor.run.vocab
    return [vocab.tokens[int(k)] for k in vocab.encode(text)], net, seen[0][:1]
