"""lm-eval's own client with its remote tokenizer on the server: what it measures is what the model says of a text."""

from __future__ import annotations

from pathlib import Path

import pytest

import recur
from tests.serve.conftest import Serving

pytest.importorskip("lm_eval", reason="needs lm-eval: pip install 'lm-eval[api]'")


@pytest.mark.filterwarnings("ignore")
def test_what_lm_eval_measures(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lm_eval.api.instance import Instance
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    made = Serving(runs / "chars", tokens=())
    try:
        client = LocalCompletionsAPI(
            base_url=f"{made.address}/v1/completions", model="chars", tokenizer_backend="remote", batch_size=2
        )
        model = recur.load(runs / "chars", device="cpu")

        def ask(kind: str, *arguments: tuple[object, ...]) -> list[Instance]:
            return [Instance(kind, {}, given, k, ("t", k, 1)) for k, given in enumerate(arguments)]

        pairs = [("the network keeps", " a word"), ("a state", " is kept"), ("the word", " and")]
        found = client.loglikelihood(ask("loglikelihood", *pairs))
        expected = [model.logprob(before + behind) - model.logprob(before) for before, behind in pairs]
        assert [value for value, _ in found] == pytest.approx(expected, abs=1e-4)
        rolled = client.loglikelihood_rolling(ask("loglikelihood_rolling", ("a state is a word",)))
        assert rolled == pytest.approx([model.logprob("a state is a word")], abs=1e-4)
        written = client.generate_until(
            ask("generate_until", ("the net", {"until": ["\n\n"], "max_gen_toks": 12, "temperature": 0}))
        )
        assert written == [model.generate("the net", 12, top_k=1)[0].partition("\n")[0]]
    finally:
        made.stop()
