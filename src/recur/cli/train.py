"""recur train: one command from a text, or a table, to a model."""

from __future__ import annotations

import json
import math
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from recur.cli.options import Output
from recur.cli.screen import Screen, facts
from recur.errors import OptionError
from recur.train.config import Config

if TYPE_CHECKING:
    from recur.train.loop import Listener, Trainer
    from recur.train.run import Run

verb = App(
    help_epilogue="""Examples:
  recur train                                 the language reference, about a minute
  recur train book.txt --cell gru --minutes 5 --out runs/book
  recur train book.txt --token word --embedding 256 --hidden 512 --layers 2
  recur train book.txt --cell mine.py:MyCell --bptt truncated:20
  recur train --config recipes/ptb-zaremba-small.toml --device cuda
  recur train pairs.tsv --task seq2seq --source-token char --target-token space --stop eos
  recur train lines.tsv --context label       a line of a given label
  recur train names.tsv --task classify --token char --directions 2
  recur train tagged.conll --task tag --token word --directions 2
  recur train trees.txt --task tree --compose tree-lstm --structure given
  recur train airline.csv --task forecast --target Passengers --horizon 12 --season 12
  recur train --task adding --length 200 --cell gru"""
)


@verb.default
def train(
    config: Annotated[Config, Parameter(name="*")] = Config(),  # noqa: B008  frozen
    *,
    out: Path | None = None,
    tensorboard: Annotated[bool, Parameter(negative="")] = False,
    output: Output = Output(),  # noqa: B008
) -> None:
    """Learn a language model from a text, or what --task says.

    Before a language model the best n-gram is fitted, to have something to beat. The run is a folder: stop it at any
    moment, with Ctrl-C or worse, and `recur resume` goes on from there. Options may also come from --config FILE.toml

    Parameters
    ----------
    out
        The run's folder; runs/NAME-TIME, if not given.
    tensorboard
        Write the metrics for TensorBoard too, into the run's folder.
    """
    from recur.train.run import Run, write_whole
    from recur.train.tasks import task_of

    screen = Screen(output)
    task = task_of(config)
    with screen.busy("reading"):
        data = task.read()
    out = out or Path("runs") / f"{task.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    run = Run.create(out, config, data.vocabs)
    screen.note(task.about(data))
    with screen.busy("counting n-grams"):
        baseline = task.baseline(data)
    if baseline is not None:
        screen.note(baseline[1])
        write_whole(run.path / "baseline.json", json.dumps({"valid_perplexity": baseline[0]}).encode())
    also = _tensorboard(run) if tensorboard else None
    carry_on(screen, run, data, baseline[0] if baseline else None, resume=False, also=also)


def _tensorboard(run: Run) -> Listener:
    from recur.errors import RecurError

    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise RecurError("TensorBoard is not installed: pip install 'recur[tensorboard]'") from None
    writer = SummaryWriter(str(run.path / "tensorboard"))

    def listen(event: dict[str, Any]) -> None:
        for name, value in event.items():
            if isinstance(value, float):
                writer.add_scalar(name, value, event["step"])
        writer.flush()

    return listen


def carry_on(
    screen: Screen, run: Run, data: Any, baseline: float | None, resume: bool, also: Listener | None = None
) -> None:
    """Train a run to its end, shown on the screen; Ctrl-C saves and says how to go on."""
    from recur.cli.display import Display
    from recur.train.loop import Trainer

    with Display(screen, run.task.curve, baseline) as display:

        def listen(event: dict[str, Any]) -> None:
            if event["event"] == "measured":
                display.sample = _sample(trainer)
                run.log({"step": event["step"], "text": display.sample}, "samples.jsonl")
            display(event)
            if also is not None:
                also(event)

        trainer = Trainer(run, data, listen)
        if resume:
            for complaint in trainer.restore():
                screen.note(f"{complaint}; the checkpoint before it serves")
        before = signal.signal(signal.SIGINT, lambda *_: setattr(trainer, "stopping", True))
        try:
            trainer.train()
        finally:
            signal.signal(signal.SIGINT, before)
    _finish(screen, run, trainer, baseline)
    if trainer.stopping:
        raise KeyboardInterrupt


def _sample(trainer: Trainer) -> str:
    import torch

    with torch.no_grad():
        text = trainer.task.sample(trainer.model.eval(), trainer.data)
    trainer.model.train()
    return text


def _finish(screen: Screen, run: Run, trainer: Trainer, baseline: float | None) -> None:
    curve = run.task.curve
    best = trainer.best_metrics.get(curve, math.inf)
    size = sum(p.numel() for p in trainer.parameters)
    content = {
        "run": str(run.path),
        **trainer.best_metrics,
        "steps": trainer.step,
        "epochs": trainer.epoch + trainer.index / len(trainer.stream),
        "tokens_per_second": trainer.tokens / trainer.seconds if trainer.seconds else 0.0,
        "seconds": trainer.seconds,
        "parameters": size,
        "backend": trainer.backend,
        "baseline_perplexity": baseline,
        "skipped": trainer.skipped,
    }
    said = {"run": str(run.path), curve.replace("_", " "): f"{best:.3f}"}
    if baseline is not None:
        said["n-gram"] = f"{baseline:.3f}: " + ("passed" if best < baseline else "not passed yet; train longer")
    said["steps"] = f"{trainer.step:,} in {trainer.seconds:.0f} s, {content['tokens_per_second']:,.0f} tokens/s"
    said["model"] = f"{run.task.architecture}, {size:,} weights, backend {trainer.backend}"
    screen.show(facts("", said))
    verb = "go on with" if trainer.stopping else "try"
    command = f"recur resume {run.path}" if trainer.stopping else f"recur {run.task.verb} {run.path}"
    screen.note(f"{verb}: {command}")
    screen.result(content)


def flags_of(path: Path) -> list[tuple[str, list[str]]]:
    """A TOML file as flags, each with what stands on the command line for it."""
    flags = []
    for name, value in Config.read_toml(path).items():
        flag = "--" + name.replace("_", "-")
        if name == "texts":
            flags.append((flag, [value] if isinstance(value, str) else list(value)))
        elif isinstance(value, bool):
            flags.append((flag, [flag if value else flag.replace("--", "--no-", 1)]))
        else:
            flags.append((flag, [flag, str(value)]))
    return flags


def expand_config(arguments: list[str]) -> list[str]:
    """`--config file.toml` replaced by what the file says, save for what is said on the command line itself."""
    at = arguments.index("--config")
    if at + 1 >= len(arguments):
        raise OptionError("--config needs a TOML file behind it")
    rest = [*arguments[:at], *arguments[at + 2 :]]
    said = {argument.partition("=")[0].replace("--no-", "--", 1) for argument in rest if argument.startswith("--")}
    kept = [token for flag, tokens in flags_of(Path(arguments[at + 1])) if flag not in said for token in tokens]
    return [*rest[:1], *kept, *rest[1:]]
