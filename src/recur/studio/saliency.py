"""Which earlier tokens a prediction hangs on: gradient × input.

    s_k  =  ⟨∂ log P(token) / ∂x_k, x_k⟩          x_k the vector of the k-th token read

Measured over the last tokens, from the state that the network had before them; what that state stands for, everything
earlier, is one number more, ⟨∂ log P / ∂s, s⟩. So it costs the same at any length of text.
"""

from __future__ import annotations

import torch

from recur.decoding.sampling import NEVER_WRITTEN
from recur.errors import OptionError
from recur.i18n import Message
from recur.models.inputs import beside, positions, split_state
from recur.serve.http.fields import field, number
from recur.studio.loaded import LoadedModel, shown_text
from recur.studio.reading import Reading
from recur.utils.types import JsonObject

SPAN = 48
"""Tokens that are followed back one by one."""


def saliency(model: LoadedModel, request: JsonObject) -> JsonObject:
    """How much each of the last tokens adds to the log-probability of the likeliest next one, or of the one named."""
    vocab = model.language.vocab
    _, reading = model.read(request)
    token = field(request, "token", "")
    if token and token not in vocab.ids:
        raise OptionError(Message("token {token} is not in the vocabulary", token=repr(token[:40])))
    target = vocab.ids[token] if token else likeliest(model, reading)
    network, first = model.language.model, max(1, len(reading.ids) - SPAN)
    mark = reading.before(first)
    ids = torch.from_numpy(reading.ids[mark.tokens :].astype("int64"))[None]
    start, earlier_ids, ids = mark.state, ids[:, : first - mark.tokens], ids[:, first - mark.tokens :]
    if earlier_ids.shape[1]:
        with torch.no_grad():
            start = network(earlier_ids, start).state
    about: JsonObject = {"target": shown_text(vocab.tokens[target]), "token": vocab.tokens[target]}
    about |= {"words": vocab.tokenizer.kind != "char", "backward": model.language.backward}
    if not ids.shape[1]:  # nothing but what precedes every text
        return {**about, "tokens": [], "values": [], "before": 0.0, "p": number(float(mark.logits.softmax(-1)[target]))}
    state = tuple(tuple(part.detach().requires_grad_(part.is_floating_point()) for part in s) for s in start)
    x = network.embedding.vectors(ids).detach().requires_grad_()
    with torch.enable_grad():
        if network.clock is None:
            out = network.recurrent(x, state)[0]
        else:
            own, t = split_state(state, ids)
            out = network.recurrent(beside(x, positions(t, ids.shape[1]), network.clock), own)[0]
        logp = network.logits_of(out[:, -1])[0].log_softmax(-1)[target]
        parts = [part for layer in state for part in layer if part.requires_grad]
        grads = torch.autograd.grad(logp, [x, *parts], allow_unused=True)
    values = [0.0] * ids.shape[1] if grads[0] is None else (grads[0] * x).sum(-1)[0].tolist()
    earlier = [float((g * part).detach().sum()) for g, part in zip(grads[1:], parts, strict=True) if g is not None]
    return {
        **about,
        "tokens": [shown_text(vocab.tokens[k]) for k in ids[0].tolist()],
        "values": [number(value) for value in values],
        "before": number(sum(earlier)),
        "p": number(float(logp.detach().exp())),
    }


def likeliest(model: LoadedModel, reading: Reading) -> int:
    """The likeliest next token that can be written; of an unfinished word, among those that begin so."""
    logits = reading.end.logits.clone()
    logits[list(NEVER_WRITTEN)] = -torch.inf
    among = model.readings.completions(reading.half) if reading.half else None
    return int(logits.argmax()) if among is None else among[int(logits[among].argmax())]
