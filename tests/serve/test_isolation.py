"""One client's mistake stays its own: sessions of other models, rows that fail, answers that cost too much."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

import recur
from recur.cli.app import run
from recur.serve.http import CHUNK, EncodedArray, buffered, json_pieces
from recur.serve.rows import run_isolated
from recur.serve.state_pool import StatePool, make_step_network
from tests.serve.conftest import BOOK, SMALL, Serving


@pytest.fixture(scope="module")
def pair(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """`chars`; `same`, with as many other characters; `words`, with another number of tokens."""
    folder = tmp_path_factory.mktemp("pair")
    (folder / "same.txt").write_text(BOOK.replace("w", "W").replace("k", "K"))
    assert run(["train", str(folder / "same.txt"), *SMALL, "--cell", "gru", "--out", str(folder / "same")]) == 0
    made = Serving(runs / "chars", folder / "same", runs / "words", runs / "waves")
    sizes = {served.name: len(served.vocab) for served in made.registry.models if served.writes}
    assert sizes["chars"] == sizes["same"] != sizes["words"]
    yield made
    made.stop()


@pytest.mark.parametrize("other", ["same", "words", "waves"])
def test_a_session_is_refused_with_another_model(pair: Serving, other: str) -> None:
    session = pair.post("/v1/sessions", 201, model="chars", input="the network")["id"]
    state = pair.get(f"/v1/sessions/{session}/state")["state"]
    for carried in ({"session": session}, {"state": state}):
        for path, body in (
            ("/v1/completions", {"prompt": "a word", "max_tokens": 4}),
            ("/v1/sessions", {"input": "a word"}),
        ):
            if path == "/v1/sessions" and "state" not in carried:
                continue
            line = pair.post(path, 400, model=other, **carried, **body)["error"]["message"]
            assert f"belongs to the model 'chars' and cannot be used with '{other}'" in line
        step = {"model": other, **carried, "input": 5}
        (found,) = pair.post("/v1/step", steps=[step])["data"]
        assert "belongs to the model 'chars'" in found["error"]["message"]
    pair.post(f"/v1/sessions/{session}/step", 400, model=other, input=5)
    columns = pair.post("/v1/step", model=other, sessions=[session], inputs=[5])
    assert "belongs to the model 'chars'" in columns["errors"]["0"]["message"]
    assert pair.get(f"/v1/sessions/{session}")["steps"] == len("the network")  # free, and nothing was read
    named = pair.post("/v1/completions", model="chars", session=session, prompt=" a", max_tokens=2, temperature=0)
    bare = pair.post("/v1/completions", state=state, prompt=" a", max_tokens=2, temperature=0)
    assert named["choices"] == bare["choices"]


def test_without_a_model_the_session_decides(pair: Serving) -> None:
    """`chars` comes first: its tokens would be the default."""
    session = pair.post("/v1/sessions", 201, model="same", input="the netWorK")["id"]
    state = pair.get(f"/v1/sessions/{session}/state")["state"]
    whole = pair.post("/v1/completions", model="same", prompt="the netWorK Keeps", max_tokens=9, temperature=0)
    found = pair.post("/v1/completions", session=session, prompt=" Keeps", max_tokens=9, temperature=0)
    travelled = pair.post("/v1/completions", state=state, prompt=" Keeps", max_tokens=9, temperature=0)
    assert found["model"] == "same"
    assert found["choices"] == whole["choices"] == travelled["choices"]
    waves = pair.post("/v1/sessions", 201, model="waves")["id"]
    assert "is of the task tag" in pair.post("/v1/completions", 400, session=waves)["error"]["message"]


def test_a_failing_row_leaves_its_neighbours_alone(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that step, scan, write and answer columns, with one token that makes the network raise."""
    made = Serving(runs / "chars")
    try:
        ask: dict[str, Any] = {"prompt": "the network", "temperature": 0, "max_tokens": 30}
        expected = made.post("/v1/completions", **ask)["choices"]
        network, bad = made.registry.models.get("chars").network, 7
        for name in ("step", "scan"):
            plain = getattr(network, name)

            def raising(x: torch.Tensor, *given: Any, plain: Any = plain) -> Any:
                if bool((x == bad).any()):
                    raise IndexError("a token that this network cannot read")
                return plain(x, *given)

            monkeypatch.setattr(network, name, raising)
        safe = made.registry.models.get("chars").vocab.encode("the network").tolist()
        assert bad not in safe
        names = [each["id"] for each in made.post("/v1/sessions", 201, n=4, input=safe)["data"]]
        found: list[Any] = []

        def neighbour() -> None:
            with httpx.Client(base_url=made.address, headers=made.headers, timeout=30) as client:
                for _ in range(6):
                    found.append(client.post("/v1/completions", json=ask))

        monkeypatch.setattr(
            made.registry.models.get("chars"), "_never", made.registry.models.get("chars")._never.clone()
        )
        made.registry.models.get("chars")._never[bad] = -torch.inf  # no neighbour writes it by itself
        threads = [threading.Thread(target=neighbour) for _ in range(3)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            steps = [{"session": names[0], "input": bad}, {"session": names[1], "input": safe[0], "every": False}]
            wrong, right = made.post("/v1/step", steps=steps)["data"]
            assert "the model failed" in wrong["error"]["message"]
            assert right["outputs"]
            scans = [{"session": names[2], "input": [bad] * 4}, {"session": names[3], "input": safe}]
            wrong, right = made.post("/v1/step", steps=scans)["data"]
            assert "the model failed" in wrong["error"]["message"]
            assert len(right["outputs"]) == len(safe)
            made.post("/v1/completions", 500, prompt=[bad, bad, bad])
        for thread in threads:
            thread.join(60)
        assert [answer.status_code for answer in found] == [200] * 18
        assert all(answer.json()["choices"] == expected for answer in found)
    finally:
        made.stop()


def test_a_step_that_fails_changes_no_state(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New and old sessions in one step, of which the old ones fail: both can be stepped again."""
    network = make_step_network(recur.load(runs / "chars", device="cpu"))
    with torch.no_grad():
        bank, alone = StatePool(network, 4), StatePool(network, 4)
        bank.step([1], [5])
        alone.step([1], [5])
        step = network.step

        def raising(x: torch.Tensor, carried: Any) -> Any:
            if carried is not None:
                raise IndexError("an old session")
            return step(x, carried)

        monkeypatch.setattr(network, "step", raising)
        with pytest.raises(IndexError):
            bank.step([0, 1], [6, 7])
        monkeypatch.setattr(network, "step", step)
        torch.testing.assert_close(bank.step([0, 1], [6, 7]), alone.step([0, 1], [6, 7]))


def test_units_that_fail_are_found_by_halves() -> None:
    failed: list[int] = []

    def work(units: Any) -> int:
        if any(unit % 10 == 3 for unit in units):
            raise ValueError("three")
        return sum(units)

    made = run_isolated(work, range(40), lambda unit, error: failed.append(unit))
    assert failed == [3, 13, 23, 33]
    assert [unit for units, _ in made for unit in units] == [k for k in range(40) if k % 10 != 3]
    assert sum(total for _, total in made) == sum(k for k in range(40) if k % 10 != 3)


# What an answer may cost -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        {"n": 256, "max_tokens": 4096, "logprobs": 20},
        {"n": 256, "max_tokens": 4096, "logprobs": 20, "stream": True},
        {"prompt": ["the network " * 9] * 256, "echo": True, "logprobs": 20, "max_tokens": 300},
    ],
)
def test_an_answer_that_is_too_large_is_refused(served: Serving, body: dict[str, Any]) -> None:
    line = served.post("/v1/completions", 400, model="chars", **body)["error"]["message"]
    assert "values, at most 2,097,152: lower n × max_tokens × (1 + logprobs)" in line


def test_steps_and_predictions_have_the_same_bound(served: Serving) -> None:
    session = served.post("/v1/sessions", 201, model="chars")["id"]
    long = served.post(f"/v1/sessions/{session}/step", 400, input=[5] * 200_000, probabilities=True)
    assert "values, at most 2,097,152" in long["error"]["message"]
    options = {"samples": 64, "length": 4096}
    wide = served.post("/v1/predict", 400, model="chars", inputs=["the"] * 1000, options=options)
    assert "values, at most 2,097,152" in wide["error"]["message"]


def test_large_answers_at_once_are_counted(runs: Path) -> None:
    made = Serving(runs / "chars", values_at_once=100)
    try:
        assert "try again" in made.post("/v1/completions", 503, max_tokens=101)["error"]["message"]
        for _ in range(3):  # each gives its values back
            made.post("/v1/completions", max_tokens=100)
        made.post("/v1/completions", 400, max_tokens=50, prompt=[10**6])
        assert made.registry.values == 0
    finally:
        made.stop()


def test_neighbours_do_not_change_how_many_log_probabilities_come(served: Serving) -> None:
    """Rows of one batch that ask for 1 and for 10 of them."""
    found: dict[int, Any] = {}

    def ask(count: int) -> None:
        found[count] = httpx.post(
            f"{served.address}/v1/completions",
            json={"model": "chars", "prompt": "the", "max_tokens": 200, "logprobs": count, "n": 8, "seed": 1},
            headers=served.headers,
            timeout=60,
        ).json()

    threads = [threading.Thread(target=ask, args=(count,)) for count in (1, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for count, answer in found.items():
        sizes = {len(top) for choice in answer["choices"] for top in choice["logprobs"]["top_logprobs"]}
        assert sizes <= {count, count + 1}  # the drawn token is among them


def test_json_in_pieces_is_json() -> None:
    column = EncodedArray()
    column.extend([1, "é"])
    column.extend([])
    column.extend([{"a": float("nan")}])
    content = {"b": column, "c": [[k, {"d": "x" * 50}] for k in range(3000)], "e": list(range(9000)), "f": {}, "g": []}
    pieces = list(buffered(json_pieces(content)))
    assert json.loads(b"".join(pieces)) == {**content, "b": [1, "é", {"a": None}]}
    assert len(pieces) > 3
    assert all(CHUNK <= len(piece) < 2 * CHUNK for piece in pieces[:-1])
