"""Runs from weights of torch.nn and Keras models, which every command of recur then reads.

language    Embedding → RNN, GRU or LSTM → Linear over the vocabulary
classify    Embedding → RNN, GRU or LSTM → pooling → Linear over the classes
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from recur.data.text import Vocab
from recur.data.text.tokenizers import SPECIALS, make_tokenizer
from recur.errors import OptionError, RunError
from recur.exchange.weights import ForeignModel, read_weights
from recur.runs import Run
from recur.tasks import config_text, make_options, task_of
from recur.tasks.common.classification import names_vocab
from recur.utils.files import read_bounded
from recur.utils.limits import check_json

VOCABULARY_BYTES = 1 << 26
"""Largest vocabulary file in bytes."""

NEVER = -1e4
"""Output bias of a token that the imported model does not have: its probability is 0."""

TASKS = ("language", "classify")
"""Tasks that an imported model can have."""


def import_run(
    weights: str | Path,
    out: str | Path,
    *,
    vocab: str | Path | Sequence[str],
    task: str = "language",
    token: str = "char",
    labels: Sequence[str] = (),
    pool: str = "last",
) -> Run:
    """Create a run from the weights of a torch or Keras model.

    Args:
        weights: file that `read_weights` reads.
        vocab: tokens in the order of their ids, or a file of them: a JSON list, a JSON object from token to id, or one
            token per line.
        task: language or classify.
        token: char or word: how a text is split into tokens.
        labels: names of the classes in order (classify).
        pool: pooling of the states before the output layer (classify): last, mean or max.
    """
    if task not in TASKS:
        raise OptionError(f"task must be one of {', '.join(TASKS)}, got {task!r}")
    model = read_weights(weights)
    if model.embedding is None or model.output is None:
        part = "embedding" if model.embedding is None else "output layer"
        raise RunError(f"{model.name} has no {part}, which a run needs; read_weights loads the recurrent layers alone")
    if model.ignored:
        raise RunError(
            f"{model.name} has weights besides embedding, recurrent layers and output layer, which a run would not "
            f"compute with: {', '.join(model.ignored[:5])}"
        )
    tokens = list(vocab) if not isinstance(vocab, str | Path) else _read_tokens(Path(vocab))
    if len(tokens) != len(model.embedding):
        raise RunError(
            f"the vocabulary has {len(tokens):,} tokens, and the embedding has {len(model.embedding):,} rows"
        )
    if len(set(tokens)) != len(tokens):
        raise RunError("the vocabulary has a token twice")
    order = [tokens.index(name) if name in tokens else -1 for name in SPECIALS]
    order += [k for k, name in enumerate(tokens) if name not in SPECIALS]
    words = [tokens[k] for k in order[len(SPECIALS) :]]
    counts = (*(int(row >= 0) for row in order[: len(SPECIALS)]), *[1] * len(words))  # 0: has no probability
    vocabs = {"vocab": Vocab((*SPECIALS, *words), counts, make_tokenizer(token))}
    output, bias = model.output
    if task == "language":
        if len(output) != len(tokens):
            raise RunError(f"the output layer has {len(output):,} rows, and the vocabulary has {len(tokens):,} tokens")
        output, bias = _rows(output, order, 0.0), _rows(bias, order, NEVER)
    else:
        if len(output) == 1:  # one sigmoid unit is a softmax over 0 and its logit
            output, bias = (torch.cat([torch.zeros_like(part), part]) for part in (output, bias))
        if len(labels) != len(output):
            raise OptionError(f"name {len(output)} labels in the order of the output layer, got {len(labels)}")
        vocabs["labels"] = names_vocab(dict.fromkeys(labels, 1))
    return _write(Path(out), model, task, token, pool, vocabs, _rows(model.embedding, order, 0.0), (output, bias))


def _write(
    out: Path,
    model: ForeignModel,
    task: str,
    token: str,
    pool: str,
    vocabs: dict[str, Vocab],
    embedding: Tensor,
    output: tuple[Tensor, Tensor],
) -> Run:
    fields: dict[str, Any] = {"texts": (), "cell": model.cell, "token": token, "num_layers": len(model.layers)}
    fields |= {"hidden_size": model.hidden_size, "embedding_size": embedding.shape[1], "direction": model.direction}
    fields |= {"auto_size": False} if task == "language" else {"pool": pool, "blend": False, "input": "text"}
    options = make_options(task, fields)
    network: nn.Module = task_of(options).new_model(vocabs)
    state = network.state_dict()
    found = {"embedding.weight": embedding, **{f"recurrent.{k}": v for k, v in model.state_dict().items()}}
    names = ("output", "bias") if task == "language" else ("output.weight", "output.bias")
    found |= dict(zip(names, output, strict=True))
    network.load_state_dict(state | found)
    run = Run.create(out, task, config_text(options, out), vocabs)
    try:
        run.save_weights(network, step=0)
        run.commit()
    finally:
        run.release()
    shutil.rmtree(out / "resume", ignore_errors=True)
    return run


def _rows(values: Tensor, order: Sequence[int], missing: float) -> Tensor:
    """Return rows in a new order; −1 is a row that does not exist."""
    found = torch.full((len(order), *values.shape[1:]), missing)
    known = [k for k, row in enumerate(order) if row >= 0]
    found[known] = values[[order[k] for k in known]]
    return found


def _read_tokens(path: Path) -> list[str]:
    """Read the tokens of a vocabulary file in the order of their ids."""
    if not path.is_file():
        raise RunError(f"no file {str(path)!r}")
    try:
        text = read_bounded(path, VOCABULARY_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RunError(f"{path} is not UTF-8") from None
    lines = text.removesuffix("\n").split("\n")
    if all(line.endswith("\r") for line in lines[:-1]):  # as Windows ends lines
        lines = [line.removesuffix("\r") for line in lines]
    if not text.lstrip().startswith(("[", "{")):
        return lines
    check_json(str(path), text, VOCABULARY_BYTES)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        if path.suffix != ".json" and len(lines) > 1:
            return lines  # tokens such as [PAD]
        raise RunError(f"{path} is not JSON: {error}") from None
    if isinstance(found, dict):
        ids = list(found.values())
        if not all(type(k) is int for k in ids) or sorted(ids) != list(range(len(ids))):
            raise RunError(f"{path} must map tokens to the ids 0 … {len(ids) - 1}, each once")
        found = sorted(found, key=found.__getitem__)
    if not all(isinstance(token, str) for token in found):
        raise RunError(f"{path} must list tokens as text")
    return list(found)
