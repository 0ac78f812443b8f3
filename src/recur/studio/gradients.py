"""Gradients through time of a text's last loss, and how training clipped."""

from __future__ import annotations

import torch
from torch.nn.functional import cross_entropy

from recur.bptt import BPTT
from recur.probes.flow import fit_decay
from recur.probes.layer import layer_name
from recur.probes.terms import terms_of
from recur.studio.fields import text_of
from recur.studio.loaded import LoadedModel, display_text
from recur.typedefs import JsonObject
from recur.web.fields import field, number

FLOW_STEPS = 120
"""Steps of the heat map, at most."""
CLIPS = 200
"""Measurements of clipping, at most."""


def gradients(model: LoadedModel, request: JsonObject) -> JsonObject:
    """‖∂L_T/∂s_t‖ for each layer, state and time, L_T the loss of the text's last token, with windows of τ steps; and
    the norm of every step's term of ∂L_T/∂W and ∂L_T/∂U."""
    subject = model.subject(text_of(request))
    steps = min(len(subject.inputs), FLOW_STEPS)
    tau = field(request, "tau", 0, 0, steps)
    x, y = (ids[:, -steps:] for ids in subject.rows(1, len(subject.inputs)))
    with subject.traced(_truncation(tau, steps)) as results:
        cross_entropy(subject.model(x).logits[:, -1], y[:, -1]).backward()
    rows, terms = [], []
    for suffix, trace in zip(subject.net.suffixes(), results[-1].trace, strict=True):
        for letter, found in sorted(terms_of(trace).items(), reverse=True):  # W before U
            facts = {"largest": found.largest, "share": number(found.share), "needed": found.steps}
            by_time = [number(norm) for norm in reversed(found.norms)]
            terms.append({"name": f"{letter}, {layer_name(suffix)}", "norms": by_time, **facts})
        for state, norms in trace.norms.items():
            line = norms[0].double()
            decay = fit_decay(line.flip(0).numpy())
            name, values = f"{state}, {layer_name(suffix)}", [number(norm) for norm in line.tolist()]
            rows.append({"name": name, "norms": values, "decay": number(decay.decay), "memory": decay.memory})
    return {
        "rows": rows,
        "terms": terms,
        "tokens": [display_text(subject.token(k)) for k in x[0].tolist()],
        "target": display_text(subject.token(int(y[0, -1]))),
        "tau": tau,
        "steps": steps,
        "clips": _clips(model),
    }


def _truncation(tau: int, steps: int) -> BPTT:
    """Windows of τ steps counted from the end, so that the last one is whole."""
    if not 0 < tau < steps:
        return BPTT()
    xi = torch.ones(steps)
    xi[list(range(steps - tau, 0, -tau))] = 0
    return BPTT(xi=xi)


def _clips(model: LoadedModel) -> list[JsonObject]:
    """How often training clipped the gradient, over time."""
    entries = model.language.run.metrics()[-CLIPS:]
    names = {"step": "step", "clipped": "clipped", "norm": "grad_norm"}
    return [{name: number(entry.get(key)) for name, key in names.items()} for entry in entries]
