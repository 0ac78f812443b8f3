"""Model card of a run (Mitchell et al., Model cards for model reporting, 2019).

The card contains only facts that the run stores; what only the author knows is left open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recur.options import flag_of
from recur.runs import Run
from recur.tasks.common.contract import Baseline, Task
from recur.tasks.common.metrics import format_metric, metric_label, metric_of
from recur.tasks.common.options import TaskOptions
from recur.tasks.common.predictor import Predictor
from recur.tasks.common.registry import ORIGINS, PATHS
from recur.tasks.common.verdict import verdict
from recur.utils.types import JsonObject

LEFT_OPEN = "*left to the author*"

NOT_SHOWN = (*PATHS, "device", "threads", "seed")
"""Options that other parts of the card show."""


def make_card(predictor: Predictor[Any]) -> JsonObject:
    """Return the content of the card by name; `card_markdown` formats it."""
    run, task = predictor.run, predictor.task
    options, about, history = task.options, run.weights_about(), run.metrics()
    metrics = {name: float(value) for name, value in about.items() if name.startswith("valid_") and _is_number(value)}
    plain = [Baseline(str(one["name"]), float(one["value"]), one["metrics"]) for one in run.baselines() or ()]
    size, digest = run.weights_digest()
    last = history[-1] if history else {}
    return {
        "name": run.path.resolve().name,
        "run": str(run.path),
        "task": task.name,
        "about": summary_line(options),
        "network": {
            "architecture": task.architecture,
            "weights": sum(p.numel() for p in predictor.model.parameters()),
            "bytes": size,
            "sha256": digest,
            **dict(predictor.sizes()),
        },
        "options": changed_options(options),
        "data": data_files(run),
        "training": {
            "seed": options.seed,
            **{name: last[name] for name in ("step", "epoch", "predictions", "seconds") if _is_number(last.get(name))},
            "kept_step": about["step"] if _is_number(about.get("step")) else None,
            "measuring_unit": task.unit,
            "budget": {
                name: value for name in ("minutes", "epochs", "steps") if (value := getattr(options, name)) is not None
            },
            "machines": run.machines(),
        },
        "metric": task.curve,
        "metrics": metrics,
        "baselines": [baseline._asdict() for baseline in plain],
        **verdict(task, metrics, plain, history).as_json(),
        "use": {"command": f"recur {task.verb} {run.path}", "python": f'recur.load("{run.path}")'},
        "licence": None,
    }


def _is_number(value: object) -> bool:
    """Return True for an int or a float: a run folder from elsewhere may contain anything."""
    return type(value) in (int, float)


def summary_line(options: TaskOptions) -> str:
    return (type(options).__doc__ or "").partition("\n")[0]


def changed_options(options: TaskOptions) -> dict[str, Any]:
    """Return the options that differ from the defaults of the task, including those chosen automatically."""
    unused, cls = options.unused(), type(options)
    values = {name: getattr(options, name) for name in cls.names() if name not in NOT_SHOWN and name not in unused}
    return {name: value for name, value in values.items() if value is not None and value != cls.default(name)}


def data_files(run: Run) -> dict[str, list[JsonObject]]:
    texts = {"train" if option == "texts" else option: many for option, many in run.manifest.texts.items()}
    return {
        option.rstrip("_"): [{"name": one.name, "bytes": one.bytes, "sha256": one.sha256} for one in many]
        for option, many in texts.items()
    }


# In Markdown -----------------------------------------------------------------------------------------------------


def card_markdown(found: JsonObject, task: Task[Any, Any, Any, Any]) -> str:
    parts = [
        f"# {_plain(found['name'])}",
        f"A model of the task *{found['task']}*: {_plain(found['about'])}",
        _section("Network", _network(found)),
        _section("Data", _data(found)),
        _section("Training", _training(found)),
        _section("Figures", _figures(found, task)),
        _section("Use", _use(found)),
        _section("Limits", _limits(found)),
        _section("Licence, authors, intended use", f"{LEFT_OPEN}: a run does not know them."),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(title: str, text: str) -> str:
    return f"## {title}\n\n{text}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_plain(str(cell)) for cell in line)} |" for line in lines)


def _plain(text: str) -> str:
    """Escape Markdown in the name of a file or a class."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "\\<")


def _network(found: JsonObject) -> str:
    network = found["network"]
    rows = [[name, f"{value:,}" if isinstance(value, int) else value] for name, value in network.items()]
    options = [[flag_of(name), _value(value)] for name, value in found["options"].items()]
    set_by = "Options that are not the task's own defaults, those among them that were left open and then decided:"
    return "\n\n".join([_table(["", ""], rows), *([set_by, _table(["option", "value"], options)] if options else [])])


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list | tuple):
        return " ".join(map(_value, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _data(found: JsonObject) -> str:
    rows = [
        [part, one["name"], f"{one['bytes']:,}", f"`{one['sha256']}`"]
        for part, many in found["data"].items()
        for one in many
    ]
    if not rows:
        return "It makes its own: sequences drawn from the seed."
    held = [part for part in ("valid", "test") if part not in found["data"]]
    said = (
        f"\n\nNo file of their own: {' and '.join(held)}; these parts are held out of the training files."
        if held
        else ""
    )
    carried = [name.rstrip("_") for name in ORIGINS if name.rstrip("_") in found["data"]]
    begun = "\n\nIt began with the weights or vectors named here, whose data is theirs." if carried else ""
    return _table(["part", "file", "bytes", "SHA-256"], rows) + said + begun


def _training(found: JsonObject) -> str:
    trained = found["training"]
    rows = [["seed", str(trained["seed"])]]
    rows += [[f"budget in {name}", _value(value)] for name, value in trained["budget"].items()]
    names = {"step": "steps", "predictions": f"{trained['measuring_unit']} read", "seconds": "seconds of training"}
    rows += [[said, f"{trained[name]:,.0f}"] for name, said in names.items() if name in trained]
    if trained["kept_step"] is not None:
        rows.append(["weights are of step", f"{trained['kept_step']:,}"])
    text = _table(["", ""], rows)
    if not trained["machines"]:
        return f"{text}\n\nOn which machine was not recorded."
    columns = ("from_step", "device", "processor", "threads", "processes", "recur", "torch", "python", "date")
    machines = [[str(one.get(name, "")) for name in columns] for one in trained["machines"]]
    return f"{text}\n\n{_table([name.replace('_', ' ') for name in columns], machines)}"


def _figures(found: JsonObject, task: Task[Any, Any, Any, Any]) -> str:
    metrics, plain = found["metrics"], found["baselines"]
    if not metrics:
        return "Not measured yet."
    names = [found["metric"], *sorted(name for name in metrics if name != found["metric"])]
    names = [name for name in names if name in metrics]
    head = ["model", *(metric_label(name) for name in names)]
    rows = [["this one", *(format_metric(name, metrics[name]) for name in names)]]
    for one in plain:
        of_it = {found["metric"]: one["value"], **one["metrics"]}
        rows.append([one["name"], *(format_metric(name, of_it[name]) if name in of_it else "" for name in names)])
    way = "higher" if metric_of(found["metric"]).higher else "lower"
    said = "Evaluated on the validation set, which also selected the weights; "
    said += f"{metric_label(found['metric'])}: {way} is better. "
    said += "`recur eval` evaluates the test set."
    none = "" if plain else "\n\nNo baseline was evaluated."
    return f"{_table(head, rows)}\n\n{said}{none}"


def _use(found: JsonObject) -> str:
    command, python = found["use"]["command"], found["use"]["python"]
    return f"```sh\n{command}\n```\n\n```python\nimport recur\n\nmodel = {python}\n```"


def _limits(found: JsonObject) -> str:
    said = [*found["verdict"]]
    if found["try"]:
        said.append(f"to try: {found['try']}")
    said.append("one seed: how much another one would differ was not measured here")
    said.append("what it does on data of another kind than its training part was not measured")
    return "\n".join(f"- {_plain(text)}" for text in said)
