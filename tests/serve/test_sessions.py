"""Sessions beside the offline scan, whatever the batch; on disk and back; in a client's hands."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

import recur
from recur.serve.sessions import unpack_state
from recur.serve.state_pool import StatePool, make_step_network
from tests.serve.conftest import TOKEN, Serving

ROUNDING = 2e-6
"""How far probabilities of a step may lie from those of the whole scan, in float32."""


def probabilities(found: dict[str, Any]) -> np.ndarray[Any, Any]:
    return np.array([list(output["probabilities"].values()) for output in found["outputs"]])


def offline(runs: Path, name: str, ids: list[int]) -> np.ndarray[Any, Any]:
    """P of what comes next behind each of these tokens: one pass over all of them."""
    model = recur.load(runs / name, device="cpu")
    lead = model._lead("")
    with torch.no_grad():
        return model.model(torch.tensor([[*lead, *ids]])).logits[0, 1:].softmax(-1).numpy()


@pytest.mark.parametrize("name", ["chars", "words"])
def test_steps_are_the_scan(served: Serving, runs: Path, name: str) -> None:
    dice = np.random.default_rng(1)
    ids = dice.integers(4, served.get(f"/v1/models/{name}")["input"]["tokens"], 40).tolist()
    expected = offline(runs, name, ids)
    session = served.post("/v1/sessions", 201, model=name)["id"]
    found = []
    for some in (ids[:1], ids[1:2], ids[2:20], ids[20:21], ids[21:]):  # by steps, and by pieces that are scanned
        found.append(probabilities(served.post(f"/v1/sessions/{session}/step", input=some, probabilities=True)))
    np.testing.assert_allclose(np.concatenate(found), expected, atol=ROUNDING)
    assert served.get(f"/v1/sessions/{session}")["steps"] == 40
    last = served.post(f"/v1/sessions/{session}/step", input=ids[:3], every=False)["outputs"]
    assert len(last) == 1
    assert served.http.delete(f"/v1/sessions/{session}").json()["deleted"]
    served.post(f"/v1/sessions/{session}/step", 404, input=5)


@pytest.mark.parametrize("name", ["chars", "words", "waves"])
def test_a_session_is_the_same_whoever_steps_beside_it(runs: Path, name: str) -> None:
    """Alone, among 5 and among 100, in any slot. Here even bit for bit; what is promised is rounding."""
    network = make_step_network(recur.load(runs / name, device="cpu"))
    dice = np.random.default_rng(2)
    inputs = (
        dice.normal(size=(12, network.width)).astype(np.float32)
        if network.numbers
        else dice.integers(4, min(20, network.width), 12)
    )
    seen = []
    with torch.no_grad():
        for others in (0, 4, 99):
            bank = StatePool(network, 200)
            for _ in range(others):
                bank.take()
            slot = bank.take()
            assert slot is not None
            said = [bank.step([*range(others), slot], [x] * (others + 1))[-1] for x in inputs]
            seen.append(torch.stack(said))
    torch.testing.assert_close(seen[0], seen[1], rtol=0, atol=ROUNDING)
    torch.testing.assert_close(seen[0], seen[2], rtol=0, atol=ROUNDING)


def test_new_sessions_step_beside_old_ones(runs: Path) -> None:
    network = make_step_network(recur.load(runs / "chars", device="cpu"))
    with torch.no_grad():
        together, alone = StatePool(network, 8), StatePool(network, 8)
        together.step([2, 5], [4, 6])
        found = together.step([1, 5, 0, 2], [7, 8, 9, 10])
        for k, read in enumerate(([7], [6, 8], [9], [4, 10])):
            said = [alone.step([k], [token]) for token in read]
            torch.testing.assert_close(found[k], said[-1][0], rtol=0, atol=10 * ROUNDING)


def test_a_text_goes_on_from_a_session_and_costs_its_own_tokens(served: Serving) -> None:
    prompt, more = "the network reads", " a word"
    whole = served.post("/v1/completions", model="chars", prompt=prompt + more, temperature=0, max_tokens=20)
    session = served.post("/v1/sessions", 201, model="chars", input=prompt)["id"]
    ask = {"model": "chars", "temperature": 0, "session": session}
    first = served.post("/v1/completions", prompt=more, max_tokens=8, **ask)
    rest = served.post("/v1/completions", prompt="", max_tokens=12, **ask)
    assert first["choices"][0]["text"] + rest["choices"][0]["text"] == whole["choices"][0]["text"]
    assert (first["usage"]["prompt_tokens"], rest["usage"]["prompt_tokens"]) == (len(more), 0)
    assert served.get(f"/v1/sessions/{session}")["steps"] == len(prompt + more) + 20
    served.post("/v1/completions", 400, prompt=["a", "the"], **ask)


def test_a_state_travels_signed(served: Serving) -> None:
    """A client that keeps its state: the same text, from any copy of it; changed, it is refused."""
    session = served.post("/v1/sessions", 201, model="chars", input="the network")["id"]
    state = served.get(f"/v1/sessions/{session}/state")["state"]
    ask = {"model": "chars", "prompt": " re", "temperature": 0, "max_tokens": 6}
    stayed = served.post("/v1/completions", session=session, **ask)
    travelled = [served.post("/v1/completions", state=state, **ask) for _ in range(2)]
    assert {each["choices"][0]["text"] for each in (stayed, *travelled)} == {stayed["choices"][0]["text"]}
    newer = travelled[0]["state"]
    assert newer != state
    again = served.post("/v1/sessions", 201, state=newer)
    assert again["steps"] == len("the network re") + 6
    both = [{"session": again["id"], "input": "a"}, {"state": newer, "input": "a"}]
    here, there = served.post("/v1/step", steps=both)["data"]
    assert here["outputs"] == there["outputs"]
    middle = len(state) // 2
    for wrong in (
        state[:middle] + ("A" if state[middle] != "A" else "B") + state[middle + 1 :],
        state[:-8],
        "rs1.",
        "rs1.é",
        "",
    ):
        assert "token" in served.post("/v1/step", steps=[{"state": wrong, "input": 5}])["data"][0]["error"]["message"]
    streamed = served.http.post("/v1/completions", json={**ask, "state": state, "stream": True}).text
    final = json.loads(streamed.split("data: ")[-2])
    assert final["state"].startswith("rs1.")


def test_numbers_are_labelled_as_they_come(served: Serving, runs: Path) -> None:
    x = np.random.default_rng(3).normal(size=(9, 2)).astype(np.float32)
    model = recur.load(runs / "waves", device="cpu")
    session = served.post("/v1/sessions", 201, model="waves")["id"]
    found = served.post(f"/v1/sessions/{session}/step", input=x[:5].tolist())["outputs"]
    found += [served.post(f"/v1/sessions/{session}/step", input=row.tolist())["outputs"][0] for row in x[5:]]
    assert [each["output"] for each in found] == list(model.stream(x))
    predicted = served.post("/v1/predict", model="waves", input=x.tolist())["data"][0]
    assert predicted["labels"] == [each["output"] for each in found]
    for wrong in ([1.0], [[1, 2], [3]], "text", [[1, 2, 3]], [True, False], [1e300, 0]):
        served.post(f"/v1/sessions/{session}/step", 400, input=wrong)


def test_what_has_no_sessions_says_why(served: Serving) -> None:
    refused = served.post("/v1/sessions", 400, model="names")["error"]["message"]
    assert "reads in direction 'both'" in refused
    found = served.post("/v1/predict", model="names", inputs=["a good film 3", "a bad film 4"])["data"]
    assert [set(each["probabilities"]) for each in found] == [{"good", "bad"}] * 2
    for wrong in (
        {"input": 5},
        {"input": "a", "inputs": ["a"]},
        {"inputs": "a"},
        {"input": "a", "options": {"lm": "x"}},
    ):
        served.post("/v1/predict", 400, model="names", **wrong)


def test_no_file_of_the_server_is_read(served: Serving, runs: Path) -> None:
    """Predictors that take files by name take none from elsewhere."""
    for given in (str(runs / "waves.npz"), [str(runs / "waves.npz")]):
        served.post("/v1/predict", 400, model="waves", input=given)


def test_a_thousand_sessions(runs: Path) -> None:
    """Stepped together, each says what it would alone."""
    made = Serving(runs / "chars", tokens=())
    try:
        names = [each["id"] for each in made.post("/v1/sessions", 201, model="chars", n=1000)["data"]]
        ids = np.random.default_rng(4).integers(4, 20, (3, 1000))
        for row in ids:
            steps = [{"session": name, "input": int(k)} for name, k in zip(names, row, strict=True)]
            found = made.post("/v1/step", steps=steps)["data"]
        assert (
            made.registry.engine.counts.sizes[1024] > made.registry.engine.counts.sizes[256]
        )  # batches of more than 256 rows
        for k in (0, 499, 999):
            expected = offline(runs, "chars", ids[:, k].tolist())[-1]
            assert found[k]["outputs"][0]["probability"] == pytest.approx(expected[4:].max(), abs=1e-5)
        assert len(made.registry.sessions) == 1000
    finally:
        made.stop()


def test_columns_are_steps(served: Serving) -> None:
    """One message for sessions of several models says what a step of each alone says; what is wrong, in its place."""
    chars = [each["id"] for each in served.post("/v1/sessions", 201, model="chars", n=6)["data"]]
    wave = served.post("/v1/sessions", 201, model="waves")["id"]
    names = [*chars[:3], wave, chars[0], "nobody", 7, chars[3], chars[4]]
    inputs = [5, 6, "t", [0.5, -1], 5, 5, 5, 10**6, [5, 6]]
    found = served.post("/v1/step", sessions=names, inputs=inputs)
    assert [k for k, output in enumerate(found["outputs"]) if output is None] == [4, 5, 6, 7, 8]
    assert {k: error["message"][:25] for k, error in found["errors"].items()} == {
        "4": f"session {chars[0]}"[:25],
        "5": "there is no session 'nobo",
        "6": "the id of a session must ",
        "7": "token ids of chars must b",
        "8": "each session takes one in",
    }
    for k, x in enumerate(inputs[:4]):
        twin = served.post("/v1/sessions", 201, model="waves" if k == 3 else "chars")["id"]
        (alone,) = served.post(f"/v1/sessions/{twin}/step", input=x)["outputs"]
        assert found["outputs"][k] == alone["output"]
        assert found["probabilities"][k] == pytest.approx(alone["probability"], abs=ROUNDING)
        assert served.get(f"/v1/sessions/{names[k]}")["steps"] == 1
    drawn = [served.post("/v1/step", sessions=chars[3:], inputs=[4] * 3, temperature=1, seed=s) for s in (1, 2, 3)]
    assert len({tuple(each["labels"]) for each in drawn}) > 1
    mixed = [{"session": chars[0], "input": 5}, {"session": chars[1], "input": 5, "temperature": 0.01}]
    likeliest, nearly = served.post("/v1/step", steps=mixed)["data"]  # drawn side by side, each in its way
    assert likeliest["outputs"][0]["probability"] > 0
    assert nearly["outputs"][0]["probability"] > 0
    for wrong in ({"sessions": chars}, {"sessions": chars, "inputs": [5]}, {"sessions": "a", "inputs": [5]}):
        served.post("/v1/step", 400, **wrong)
    with connect(served.address.replace("http", "ws") + "/v1/step", additional_headers=served.headers) as line:
        line.send(json.dumps({"id": 1, "sessions": chars, "inputs": [5] * 6}))
        assert len(json.loads(line.recv())["labels"]) == 6


def test_a_column_that_fails_frees_its_sessions(runs: Path) -> None:
    made = Serving(runs / "chars")
    try:
        names = [each["id"] for each in made.post("/v1/sessions", 201, n=2)["data"]]
        made.post("/v1/step", sessions=names, inputs=[5, 5])
        bank = made.registry.models.get("chars").pool
        step, bank.step = bank.step, lambda *given: 1 / 0
        found = made.post("/v1/step", sessions=names, inputs=[5, 5])
        assert "failed" in found["errors"]["0"]["message"]
        bank.step = lambda *given: torch.full_like(step(*given), torch.nan)
        found = made.post("/v1/step", sessions=names, inputs=[5, 5])
        assert found["outputs"] == [None, None]
        assert "not a number" in found["errors"]["1"]["message"]
        bank.step = step
        assert "errors" not in made.post("/v1/step", sessions=names, inputs=[5, 5])
    finally:
        made.stop()


# Idle ones --------------------------------------------------------------------------------------------------------


@pytest.fixture
def spilling(runs: Path, tmp_path: Path) -> Iterator[Serving]:
    made = Serving(runs / "chars", spill=tmp_path / "sessions", sessions=4)
    yield made
    made.stop()


def test_idle_sessions_go_to_disk_and_come_back_bit_equal(spilling: Serving, tmp_path: Path) -> None:
    served = spilling
    names = [served.post("/v1/sessions", 201, input="the")["id"] for _ in range(12)]  # of which memory has 4 places
    assert len(served.registry.sessions) <= 4
    assert served.registry.sessions.stored >= 8
    plain = served.registry.models.get("chars")
    before = {}
    for name in names[:3]:
        path = tmp_path / "sessions" / f"{name}.safetensors"
        before[name] = unpack_state(path.read_bytes(), name)[1]
    for name in names[:3]:
        served.get(f"/v1/sessions/{name}")
        session = served.registry.sessions._sessions[name]
        now = served.registry.engine.call(lambda slot=session.slot: plain.pool.state(slot)).result(5)
        assert now is not None
        assert all(torch.equal(a, b) for a, b in zip(now, before[name], strict=True))
        assert not (tmp_path / "sessions" / f"{name}.safetensors").exists()
    answers = [served.post(f"/v1/sessions/{name}/step", input=" ")["outputs"][0]["probability"] for name in names]
    assert len(set(answers)) == 1  # all have read the same, wherever they have been
    metrics = served.http.get("/metrics").text
    assert 'recur_sessions{where="disk"} 8' in metrics


def test_sessions_outlive_the_server(runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    first = Serving(runs / "chars", spill=folder)
    name = first.post("/v1/sessions", 201, input="the net")["id"]
    state = first.get(f"/v1/sessions/{name}/state")["state"]
    first.stop()
    assert (folder / "secret").stat().st_mode & 0o077 == 0
    second = Serving(runs / "chars", spill=folder)
    try:
        here, there = second.post("/v1/step", steps=[{"session": name, "input": "w"}, {"state": state, "input": "w"}])[
            "data"
        ]
        assert here["outputs"] == there["outputs"]
        (folder / ("0" * 24 + ".safetensors")).write_bytes(b"damaged")
        assert second.http.get("/v1/sessions/" + "0" * 24).status_code == 404
        second.get("/v1/sessions/..%2Fsecret", 404)
    finally:
        second.stop()


def test_sessions_expire(runs: Path) -> None:
    made = Serving(runs / "chars", idle=0.2, sessions=2)
    try:
        names = [made.post("/v1/sessions", 201)["id"] for _ in range(2)]
        assert "sessions, the maximum" in made.post("/v1/sessions", 503)["error"]["message"]
        end = time.monotonic() + 10
        while len(made.registry.sessions) and time.monotonic() < end:
            time.sleep(0.05)
        made.get(f"/v1/sessions/{names[0]}", 404)
        made.post("/v1/sessions", 201)
    finally:
        made.stop()


def test_sessions_are_theirs_who_began_them(runs: Path) -> None:
    made = Serving(runs / "chars", tokens=("one", "two"))
    try:
        name = made.post("/v1/sessions", 201)["id"]
        state = made.get(f"/v1/sessions/{name}/state")["state"]
        other = {"Authorization": "Bearer two"}
        assert made.http.get(f"/v1/sessions/{name}", headers=other).status_code == 404
        stolen = made.http.post("/v1/sessions", json={"state": state}, headers=other)
        assert stolen.status_code == 404
        assert made.get(f"/v1/sessions/{name}")["id"] == name
    finally:
        made.stop()


# WebSockets -------------------------------------------------------------------------------------------------------


def test_a_session_over_a_websocket(served: Serving) -> None:
    name = served.post("/v1/sessions", 201, model="chars")["id"]
    twin = served.post("/v1/sessions", 201, model="chars")["id"]
    address = served.address.replace("http", "ws")
    with connect(f"{address}/v1/sessions/{name}/step", additional_headers=served.headers) as line:
        for text in ("the", " ", "net"):
            line.send(json.dumps({"input": text}))
            found = json.loads(line.recv())
            assert found["outputs"] == served.post(f"/v1/sessions/{twin}/step", input=text)["outputs"]
        for wrong in ("[]", "{", '{"input": -5}', '{"input": "ж"}', "{}"):
            line.send(wrong)
            assert "error" in json.loads(line.recv())
    with connect(f"{address}/v1/step", additional_headers=served.headers) as line:
        line.send(json.dumps({"id": 7, "steps": [{"session": name, "input": 5}, {"session": name, "input": 5}]}))
        found = json.loads(line.recv())
        assert found["id"] == 7
        assert "in use" in found["data"][1]["error"]["message"]
    with pytest.raises(Exception, match="401"), connect(f"{address}/v1/step"):
        pass
    with connect(f"{address}/v1/step", additional_headers=served.headers, max_size=None) as line:
        line.send("x" * (2 << 20))
        with pytest.raises(ConnectionClosed):
            line.recv()


def test_a_websocket_may_be_silent(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request has its time to be whole; a WebSocket that was opened has not."""
    monkeypatch.setattr("recur.serve.server.REQUEST_SECONDS", 0.1)
    made = Serving(runs / "chars", tokens=())
    try:
        name = made.post("/v1/sessions", 201)["id"]
        with connect(f"ws://127.0.0.1:{made.port}/v1/sessions/{name}/step") as line:
            time.sleep(0.3)
            line.send('{"input": "the"}')
            assert len(json.loads(line.recv())["outputs"]) == 3
    finally:
        made.stop()


def test_a_session_takes_one_request_after_the_other(served: Serving) -> None:
    name = served.post("/v1/sessions", 201, model="chars")["id"]
    statuses: list[int] = []

    def write() -> None:
        ask = {"model": "chars", "session": name, "max_tokens": 400}
        statuses.append(served.http.post("/v1/completions", json=ask).status_code)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(set(statuses)) in ([200], [200, 409])
    assert served.get(f"/v1/sessions/{name}")["steps"] == 400 * statuses.count(200)
    assert TOKEN not in served.http.get("/metrics").text
