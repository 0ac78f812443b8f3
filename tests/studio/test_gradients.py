"""Gradients: numbers against autograd on the network itself, and the page against the numbers."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from recur.runs import Run
from recur.studio.gradients import GradientRequest, eigenvalues, gradients
from recur.studio.inspection import saliency
from recur.studio.loaded_model import LoadedModel
from tests.studio.browser import Visit, needs_browser, picture, settle

TEXT = "the network keeps a word and the word is kept\n"


@pytest.fixture(scope="module")
def gru(runs: Path) -> LoadedModel:
    return LoadedModel(Run.open(runs / "gru"))


def by_hand(model: LoadedModel, cuts: tuple[int, ...] = (), every: bool = False) -> tuple[Any, list[float]]:
    """∂L/∂W and ‖∂L/∂h_t‖ of a GRU written out, its state detached where it is cut."""
    w = {name: part.detach().clone() for name, part in model.language.model.state_dict().items()}
    U, W, b, c = (w[f"recurrent.{name}_l0"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    W.requires_grad_()
    vocab = model.language.vocab
    ids = [vocab.ids["\n"], *(int(k) for k in vocab.encode(TEXT))]
    bias = model.language.model.output_bias().detach()
    h, states, losses = torch.zeros(W.shape[1]), [], []
    for t, (token, target) in enumerate(itertools.pairwise(ids)):
        before = h.detach() if t in cuts else h
        x_r, x_z, x_n = (U @ w["embedding.weight"][token] + b).chunk(3)
        h_r, h_z, h_n = (W @ before + c).chunk(3)
        r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
        h = (1 - z) * torch.tanh(x_n + r * h_n) + z * before
        h.retain_grad()
        states.append(h)
        losses.append(cross_entropy((w["output"] @ h + bias)[None], torch.tensor([target])))
    (torch.stack(losses).mean() if every else losses[-1]).backward()
    return W.grad, [0.0 if h.grad is None else float(h.grad.norm()) for h in states]


@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize("cuts", [(), (30, 41)])
def test_the_sum_and_the_flow_are_autograds(gru: LoadedModel, every: bool, cuts: tuple[int, ...]) -> None:
    W, norms = by_hand(gru, cuts, every)
    found = gradients(gru, {"text": TEXT, "cuts": list(cuts), "losses": "all" if every else "last"})
    assert found["terms"][0]["whole"] == pytest.approx(float(W.norm()), rel=1e-4)
    assert found["rows"][0]["norms"] == pytest.approx(norms, rel=1e-3, abs=1e-9)
    full, _ = by_hand(gru, (), every)
    cosine = float((W * full).sum() / (W.norm() * full.norm()))
    assert found["terms"][0]["cosine"] == pytest.approx(cosine, abs=1e-4)
    if cuts and not every:
        assert not any(found["terms"][0]["norms"][:40]), "nothing comes through the last cut"
        assert all(found["terms"][0]["full"][30:]), "the full gradient stays beside it"


def test_losses_by_themselves_are_the_sum(gru: LoadedModel) -> None:
    found = gradients(gru, {"text": TEXT, "losses": "all"})
    by_loss = found["terms"][0]["by_loss"]
    assert [len(row) for row in by_loss] == list(range(1, len(TEXT) + 1)), "a loss reaches no later step"
    last = gradients(gru, {"text": TEXT})["terms"][0]["norms"]
    assert by_loss[-1] == pytest.approx([norm / len(TEXT) for norm in last], rel=1e-4, abs=1e-9)
    assert found["terms"][0]["norms"][-1] == pytest.approx(by_loss[-1][-1], rel=1e-4), "the last step has one loss"


def test_modes_of_truncation_are_zeros_and_weights_of_the_edges() -> None:
    losses = torch.tensor([9, 5])
    assert GradientRequest(True, 10, "truncated", tau=4).xi(losses)[0].tolist() == [1, 1, 0, 1, 1, 1, 0, 1, 1, 1]
    sliding = GradientRequest(True, 10, "sliding", tau=4).xi(losses)
    assert (sliding == 0).nonzero().tolist() == [[0, 6], [1, 2]], "4 steps back from each loss"
    drawn = GradientRequest(True, 1000, "randomized", keep=0.8, seed=1).xi(losses)
    assert set(drawn[:, 1:].unique().tolist()) == {0.0, 1.25}
    assert drawn.mean() == pytest.approx(1.0, abs=0.05)
    assert torch.equal(drawn[0], drawn[1]), "one draw for all losses of a pass"


def test_a_rescaled_matrix_has_the_radius_asked_for(gru: LoadedModel) -> None:
    found = eigenvalues(gru, {"text": TEXT, "radius": 1.5})
    assert max(block["radius"] for block in found["blocks"] if block["name"] != "J") == pytest.approx(1.5, rel=1e-5)
    own = eigenvalues(gru, {"text": TEXT})
    W = gru.language.model.state_dict()["recurrent.weight_hh_l0"].double()
    expected = torch.linalg.eigvals(W.chunk(3)[2]).abs().max()
    n = next(block for block in own["blocks"] if block["name"] == "W_n")
    assert n["radius"] == pytest.approx(float(expected), rel=1e-5)
    large, small = (gradients(gru, {"text": TEXT, "radius": radius})["rows"][0]["norms"][10] for radius in (1.6, 0.2))
    assert large > 10 * small


def test_what_a_prediction_hangs_on_is_gradient_times_input(gru: LoadedModel) -> None:
    network, vocab = gru.language.model, gru.language.vocab
    text = TEXT * 4
    found = saliency(gru, {"text": text})
    ids = torch.tensor([[vocab.ids["\n"], *(int(k) for k in vocab.encode(text))]])
    x = network.embedding.vectors(ids).detach().requires_grad_()
    logp = network.logits_of(network.recurrent(x)[0][:, -1])[0].log_softmax(-1)[vocab.ids[found["token"]]]
    (grad,) = torch.autograd.grad(logp, x)
    assert found["values"] == pytest.approx((grad * x)[0].sum(-1).tolist()[-48:], rel=1e-3, abs=1e-6)
    assert found["p"] == pytest.approx(float(logp.detach().exp()), rel=1e-4)
    assert saliency(gru, {"text": ""})["tokens"] == []


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"losses": "first"}, "losses must be one of last, all"),
        ({"mode": "none"}, "mode must be one of full"),
        ({"cuts": [0]}, "cuts must be steps in 1 … 45"),
        ({"cuts": "3"}, "cuts must be"),
        ({"text": "a"}, "the text is too short: 1 tokens"),
    ],
)
def test_what_cannot_be_measured_is_said(gru: LoadedModel, request_: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        gradients(gru, {"text": TEXT, **request_})


class TestPage:
    pytestmark = needs_browser

    def test_a_click_between_two_steps_cuts_the_sum(self, visit: Visit, gru: LoadedModel) -> None:
        page = visit.open("gradients", "gru")
        page.locator("textarea").fill(TEXT)
        count = f"document.querySelectorAll('#sum .step').length === {len(TEXT)}"
        page.wait_for_function(count)
        norms = "[...document.querySelectorAll('#sum .step')].map((step) => Number(step.dataset.norm))"
        assert page.evaluate(norms) == pytest.approx(gradients(gru, {"text": TEXT})["terms"][0]["norms"], rel=1e-6)
        box = page.locator("#sum .step").nth(39).bounding_box()
        page.mouse.click(box["x"] + 0.8 * box["width"], box["y"] + 40)
        page.wait_for_selector("#sum .step.cut")
        expected = gradients(gru, {"text": TEXT, "cuts": [40]})["terms"][0]
        assert page.evaluate(norms) == pytest.approx(expected["norms"], rel=1e-6)
        assert f"cosine {expected['cosine']:.3f}" in page.inner_text("#sum-facts")
        assert "cuts=40" in page.evaluate("new Promise((done) => setTimeout(() => done(location.hash), 400))")
        page.locator("#sum .step").nth(40).focus()
        page.keyboard.press("Enter")
        page.wait_for_function("!document.querySelector('#sum .step.cut')")
        assert page.evaluate("document.activeElement.classList.contains('step')"), "the focus is kept"
        page.get_by_label("of every token").check()
        page.wait_for_selector("#triangle rect")
        assert page.locator("#triangle rect").count() == len(TEXT) * (len(TEXT) + 1) // 2
        picture(page, "gradients-all")

    @pytest.mark.parametrize("view", ["gradients", "see", "write"])
    def test_the_example_that_arrives_late_is_not_mixed_with_typed_text(self, visit: Visit, view: str) -> None:
        held: list[Any] = []
        visit.page.route("**/example", lambda route: held.append(route))
        page = visit.open(view, "gru")
        area = page.locator("textarea")
        area.focus()
        while not held:
            page.wait_for_timeout(10)
        with page.expect_event("requestfinished", lambda request: request.url.endswith("/example")):
            held.pop().continue_()
        settle(page)
        assert area.input_value() == "", "the box that has the focus is left alone"
        page.keyboard.insert_text("the netw")
        page.wait_for_function("location.hash.includes('the+netw')")
        page.locator("#theme").focus()
        assert area.input_value() == "the netw"

    def test_a_box_that_is_left_empty_gets_the_example(self, visit: Visit) -> None:
        held: list[Any] = []
        visit.page.route("**/example", lambda route: held.append(route))
        page = visit.open("gradients", "gru")
        area = page.locator("textarea")
        area.focus()
        while not held:
            page.wait_for_timeout(10)
        with page.expect_event("requestfinished", lambda request: request.url.endswith("/example")):
            held.pop().continue_()
        page.locator("#theme").focus()
        page.wait_for_selector("#sum .step >> nth=20")
        assert area.input_value()

    def test_truncation_keeps_its_axes_and_the_full_curve(self, visit: Visit) -> None:
        page = visit.open("gradients", "gru")
        page.locator("textarea").fill(TEXT)
        page.wait_for_function(f"document.querySelectorAll('#sum .step').length === {len(TEXT)}")
        labels = "[...document.querySelectorAll('#flow text')].map((one) => one.textContent).join()"
        paths = "[...document.querySelectorAll('#flow path')].map((one) => one.getAttribute('d'))"
        axes, (ghost, curve) = page.evaluate(labels), page.evaluate(paths)
        assert ghost == curve
        page.get_by_label("sliding").check()
        page.locator("input[type=range]").first.fill("6")
        page.wait_for_function(f"{paths}[1].split('L').length === 6")
        assert page.evaluate(labels) == axes
        assert page.evaluate(paths)[0] == ghost
        page.locator("#rescaled path >> nth=1").wait_for()
        before = page.locator("#rescaled path").nth(1).get_attribute("d")
        page.locator("input[type=range]").last.fill("1.5")
        page.wait_for_function(f"document.querySelectorAll('#rescaled path')[1].getAttribute('d') !== {before!r}")
        assert "1.5" in page.inner_text("#radius-about")

    def test_what_it_hangs_on_follows_each_key(self, visit: Visit, gru: LoadedModel) -> None:
        page = visit.open("write", "gru")
        page.wait_for_selector("#bars button")
        page.locator("textarea").fill("the netw")
        page.wait_for_function(  # the text before may have the same next letter: its length tells them apart
            "document.querySelector('#hangs b')?.textContent === 'o' && "
            f"document.querySelectorAll('#hangs span[data-value]').length === {len('the netw') + 1}"
        )
        values = "[...document.querySelectorAll('#hangs span[data-value]')].map((one) => Number(one.dataset.value))"
        expected = saliency(gru, {"text": "the netw"})
        assert page.evaluate(values) == pytest.approx([expected["before"], *expected["values"]], rel=1e-4, abs=1e-7)
        page.locator("textarea").press_sequentially("o")
        after = saliency(gru, {"text": "the netwo"})
        page.wait_for_function(
            f"document.querySelectorAll('#hangs span[data-value]').length === {len('the netwo') + 1}"
        )
        assert page.evaluate(values) == pytest.approx([after["before"], *after["values"]], rel=1e-4, abs=1e-7)
