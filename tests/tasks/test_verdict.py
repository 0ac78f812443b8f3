"""What is said of a trained model: beside plain ones, of its training, and the one option to try."""

from __future__ import annotations

from typing import Any

import pytest

from recur.cli.display import show_verdict
from recur.cli.options import Output
from recur.cli.screen import Screen
from recur.tasks import make_options, task_of
from recur.tasks.common.contract import Baseline, Remark
from recur.tasks.common.metrics import METRICS, best_value, format_metric, is_better, metric_label
from recur.tasks.common.verdict import Verdict, training_remarks, verdict

LANGUAGE: Any = task_of(make_options("language", {"texts": ["pydoc"], "minutes": 2.0, "dropout_output": 0.3}))
CLASSIFY: Any = task_of(make_options("classify", {"texts": ["t.tsv"], "epochs": 4.0, "hidden_size": 32}))
GRAM = Baseline("6-gram", 3.3)


def history(name: str, *values: float) -> list[dict[str, Any]]:
    return [{"step": 10 * (k + 1), name: value} for k, value in enumerate(values)]


def said(task: Any, name: str, *values: float, plain: tuple[Baseline, ...] = ()) -> Verdict:
    best = best_value(name, list(values))
    return verdict(task, {name: best}, plain, history(name, *values))


def test_shares_are_in_per_cent_and_other_figures_are_not() -> None:
    assert format_metric("valid_error", 0.1234) == "12.3 %"
    assert format_metric("error", 0.0) == "0.0 %"
    assert format_metric("ece", 0.0004) == "0.04 %"
    assert format_metric("valid_perplexity", 1234.5) == "1,234.500"
    assert format_metric("bleu", 33.333) == "33.3"
    assert metric_label("valid_macro_f1") == "valid macro F1"
    assert metric_label("no_such_figure") == "no such figure"
    assert is_better("f1", 0.9, 0.8)
    assert is_better("valid_perplexity", 3.0, 4.0)
    assert all(metric.words for metric in METRICS.values())


@pytest.mark.parametrize(
    ("value", "beginning"), [(3.0, "ahead of 6-gram"), (3.3, "level with 6-gram"), (3.6, "behind 6-gram")]
)
def test_where_it_stands(value: float, beginning: str) -> None:
    found = verdict(LANGUAGE, {"valid_perplexity": value}, [GRAM], [])
    assert found.remarks[0].startswith(beginning)


def test_the_best_of_several_plain_models_is_named() -> None:
    plain = (Baseline("always a", 0.5), Baseline("n-grams", 0.2))
    assert "n-grams, the best of 2 baselines" in said(CLASSIFY, "valid_error", 0.1, plain=plain).remarks[0]


def test_what_still_falls_is_given_more_time() -> None:
    found = said(LANGUAGE, "valid_perplexity", 9, 8, 7, 6, 5.5, 5, 4.6, 4.3, 4.1, 4.0, plain=(GRAM,))
    assert found.remarks[-1] == "valid perplexity was still improving when training ended"
    assert found.option == "--minutes 4"
    rising = training_remarks(_tagger(), history("valid_f1", 0.1, 0.2, 0.3, 0.4, 0.5, 0.6))
    assert rising[0].option == "--epochs 8"


def test_what_gets_worse_is_given_more_dropout() -> None:
    found = said(LANGUAGE, "valid_perplexity", 5, 4, 3.5, 3.4, 3.6, 3.8, 4.0, 4.2, 4.4, 4.6, plain=(GRAM,))
    assert any(remark.startswith("overfitting: best after 40 of 100 steps") for remark in found.remarks)
    assert found.option == "--dropout-output 0.5"


def test_of_a_blend_the_network_alone_says_whether_it_had_ended() -> None:
    right = (0.62, 0.62, 0.62, 0.63, 0.74, 0.76, 0.77, 0.76, 0.76, 0.78)
    plain = [Baseline("n-grams", 0.15)]

    def of(shares: tuple[float, ...]) -> Verdict:
        entries = [{"step": 10 * k, "valid_error": 0.17, "valid_network_accuracy": p} for k, p in enumerate(shares, 1)]
        return verdict(CLASSIFY, {"valid_error": 0.17}, plain, entries)

    assert of(right).remarks[-1].startswith("the network alone was still improving when training ended: accuracy 74%")
    assert of(right).option == "--epochs 8"
    assert of(right[-1:] * 10).option == "", "whether more units would help was not measured"


def test_what_is_level_and_behind_is_made_larger() -> None:
    flat = (0.30, 0.301, 0.30, 0.302, 0.30, 0.3, 0.301, 0.30, 0.30, 0.3)
    assert said(CLASSIFY, "valid_error", *flat, plain=(Baseline("n-grams", 0.2),)).option == "--hidden-size 64"
    assert said(CLASSIFY, "valid_error", *flat, plain=(Baseline("always a", 0.5),)).option == ""


def test_the_loss_tells_where_the_figure_stands_still() -> None:
    entries = [{"step": 20 * k, "valid_error": 1.0, "valid_loss": 5.0 - 0.3 * k, "train_loss": 5.0} for k in range(10)]
    assert training_remarks(CLASSIFY, entries)[0].option == "--epochs 8"


def test_a_figure_that_wavers_while_its_loss_falls_does_not_overfit() -> None:
    values = (0.3, 0.2, 0.1, 0.11, 0.12, 0.11, 0.12, 0.11)
    entries = [{"step": k, "valid_error": v, "valid_loss": 1 / (k + 1)} for k, v in enumerate(values)]
    assert not any("overfits" in remark.text for remark in training_remarks(CLASSIFY, entries))


def test_what_cannot_be_seen_or_may_be_chance_does_not_overfit() -> None:
    """0.1 % and 0.1 % of the variance; a loss that 20 rows may give or take, which 3,000 would not."""

    def of(name: str, values: tuple[float, ...], losses: tuple[float, ...] = (), measured: int = 0) -> bool:
        entries = [{"step": 20 * k, name: v, "measured": measured} for k, v in enumerate(values)]
        entries = [{**e, "valid_loss": loss} for e, loss in zip(entries, losses, strict=True)] if losses else entries
        return any(remark.kind == "overfits" for remark in training_remarks(CLASSIFY, entries))

    rising = (0.5, 0.40, 0.41, 0.42, 0.43, 0.44)
    assert of("valid_error", tuple(v / 10 for v in rising))
    assert not of("valid_error", tuple(v / 400 for v in rising)), "0.1 % then, 0.1 % at the end"
    assert not of("valid_error", rising, measured=20), "a tenth more, where the error of 20 is a ninth"
    assert of("valid_error", rising, measured=2000)
    loss = (1.0, 0.80, 0.82, 0.84, 0.86, 0.88)
    assert of("valid_error", rising, loss)
    assert not of("valid_error", rising, loss, measured=20)
    assert of("valid_error", rising, loss, measured=2000)


def test_what_stands_still_where_it_began_has_hardly_begun() -> None:
    blind, reading = Baseline("always a", 0.5), Baseline("n-grams", 0.2)
    flat = (0.48, 0.481, 0.48, 0.482, 0.48, 0.48)
    found = said(CLASSIFY, "valid_error", *flat, plain=(blind,))
    assert found.remarks[-1] == "the model has barely started to learn: always a is about as good"
    assert found.option == "--epochs 8"
    assert said(CLASSIFY, "valid_error", *flat, plain=(blind, reading)).option == "--epochs 8"
    nothing = said(CLASSIFY, "valid_error", *flat, plain=(blind, Baseline("n-grams", 0.47)))
    assert nothing.option == "--hidden-size 64", "where those that read are no better, there may be nothing to learn"
    assert said(CLASSIFY, "valid_error", *(v - 0.1 for v in flat), plain=(blind,)).option == "", "0.38 is something"


def test_what_is_learned_by_heart_is_not_given_more_time() -> None:
    entries = [{"step": 20 * k, "valid_error": 0.5 - 0.04 * k, "valid_loss": 1.0, "train_loss": 0.1} for k in range(10)]
    (found,) = training_remarks(CLASSIFY, entries)
    assert "overfitting: training loss" in found.text
    assert found.option == "--dropout-output 0.7"


def test_what_is_behind_and_was_hardly_measured_is_given_more_time() -> None:
    found = said(CLASSIFY, "valid_error", 0.5, 0.5, plain=(Baseline("n-grams", 0.2),))
    assert found.option == "--epochs 8"


def test_few_measurements_say_nothing_of_a_trend() -> None:
    assert training_remarks(LANGUAGE, history("valid_perplexity", 9, 5, 3)) == []


def test_what_the_task_says_comes_first() -> None:
    class Cut(type(CLASSIFY)):  # type: ignore[misc]
        def remarks(self, metrics: Any) -> list[Remark]:
            return [Remark(f"{metrics['cut']:.0%} of outputs were cut", "--max-length 200")]

    falling = history("valid_error", *(1 / k for k in range(1, 11)))
    found = verdict(Cut(CLASSIFY.options), {"valid_error": 0.1, "valid_cut": 1.0}, [], falling)
    assert found.remarks[0] == "100% of outputs were cut"
    assert found.option == "--max-length 200"


def _tagger() -> Any:
    class Spans(type(CLASSIFY)):  # type: ignore[misc]
        curve = "valid_f1"

    return Spans(CLASSIFY.options)


def test_few_steps_and_few_examples_claim_nothing() -> None:
    """A trend over a handful of steps, or one example of a hundred, is chance."""
    values = (9, 8, 7, 6, 5.5, 5)
    few = [entry | {"step": k + 1} for k, entry in enumerate(history("valid_perplexity", *values))]
    assert training_remarks(LANGUAGE, few) == []
    behind = verdict(LANGUAGE, {"valid_perplexity": 5.0}, [GRAM], few)
    assert behind.remarks[-1] == "too few steps and evaluations to tell whether training was long enough"
    assert behind.option == "--minutes 4"

    errors, losses = (
        (0.5, 0.3, 0.1887, 0.1981, 0.1981, 0.1981, 0.1981, 0.1981),
        (2.0, 1.0, 0.5, 0.6, 0.6, 0.7, 0.7, 0.8),
    )

    def entries(examples: int, last: float) -> list[dict[str, Any]]:
        pairs = zip(history("valid_error", *errors[:-1], last), losses, strict=True)
        return [entry | {"valid_loss": loss, "measured": examples} for entry, loss in pairs]

    one_of_106, many_of_106, one_in_100_of_many = entries(106, 0.1981), entries(106, 0.26), entries(100_000, 0.1981)
    kinds = [
        [r.kind for r in training_remarks(CLASSIFY, each)] for each in (one_of_106, many_of_106, one_in_100_of_many)
    ]
    assert kinds == [[], ["overfits"], ["overfits"]]

    tiny = [entry | {"measured": 5} for entry in history("valid_error", *errors)]
    found = verdict(CLASSIFY, {"valid_error": 0.19}, [Baseline("always a", 0.5)], tiny)
    assert found.remarks == ("the validation set is too small to judge the model: 5, and 20 are needed",)


def test_the_verdict_reads_as_a_sentence_with_what_to_try(capsys: pytest.CaptureFixture[str]) -> None:
    show_verdict(Screen(Output()), ["overfitting: training loss 0.95, validation loss 1.17"], "--dropout 0.45")
    out = capsys.readouterr().out
    assert out.strip() == "Overfitting: training loss 0.95, validation loss 1.17. Try --dropout 0.45."
