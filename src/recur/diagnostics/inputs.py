"""Sequences of numbers: which of its features a network listens to, ‖∂L_T/∂x‖ of each over all steps."""

from __future__ import annotations

import torch

from recur.diagnostics.finding import Finding, Level, Measurement
from recur.diagnostics.subject import Subject
from recur.i18n import said

DEAF = 0.01
"""Of the most heard feature: one that is heard less is not heard."""


def inputs(subject: Subject) -> Measurement:
    x, loss = subject.last_loss(16, 200)
    x = x.detach().clone().requires_grad_()
    (grad,) = torch.autograd.grad(loss(subject.model(x)), x)
    heard = grad.double().square().sum(dim=(0, 1)).sqrt()
    most = float(heard.max()) or 1.0
    share = (heard / most).tolist()
    deaf = [k for k, value in enumerate(share) if value < DEAF]
    numbers = {"features": share}
    if deaf:
        verdict = said(
            "{count} of {all} features are hardly heard, the first of them number {first}",
            count=len(deaf), all=len(share), first=deaf[0] + 1,
        )  # fmt: skip
        return Measurement(Finding("inputs", Level.OK, len(deaf), 0, verdict), numbers)
    verdict = said(
        "all {all} features are heard, number {most} the most", all=len(share), most=int(heard.argmax()) + 1
    )  # fmt: skip
    return Measurement(Finding("inputs", Level.OK, 0, 0, verdict), numbers)
