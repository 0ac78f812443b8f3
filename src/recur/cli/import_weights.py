"""recur import: a run from the weights of a torch.nn or Keras model."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from cyclopts import App

from recur.cli.options import Output
from recur.cli.screen import Screen

verb = App(
    name="import",
    help_epilogue="""Examples:
  recur import char_rnn.pt --vocab chars.json --out runs/char           an nn.LSTM language model
  recur import words.keras --vocab words.txt --token word --out runs/words
  recur import mood.keras --task classify --vocab words.txt --token word --labels neg pos --out runs/mood""",
)


@verb.default
def import_weights(
    weights: Path,
    /,
    *,
    vocab: Path,
    out: Path,
    task: Literal["language", "classify"] = "language",
    token: Literal["char", "word"] = "char",
    labels: tuple[str, ...] = (),
    pool: Literal["last", "mean", "max"] = "last",
    output: Output = Output(),  # noqa: B008  frozen
) -> None:
    """Import the weights of a torch.nn or Keras model with an embedding, RNN, GRU or LSTM layers and an output layer.

    Parameters
    ----------
    weights
        A state_dict (.pt, .pth, .safetensors) or a Keras model (.keras, .h5).
    vocab
        Tokens in the order of their ids: a JSON list, a JSON object from token to id, or one token per line.
    out
        Folder of the new run.
    task
        Task of the model.
    token
        How a text is split into tokens.
    labels
        Names of the classes, in the order of the output layer (classify).
    pool
        Pooling of the states before the output layer (classify).
    """
    from recur.exchange import import_run

    screen = Screen(output)
    run = import_run(weights, out, vocab=vocab, task=task, token=token, labels=labels, pool=pool)
    screen.note(f"imported into {run.path}; use it: recur {'sample' if task == 'language' else 'predict'} {run.path}")
    screen.result({"run": str(run.path), "task": task})
