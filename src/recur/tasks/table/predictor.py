"""What a network of one step can do: tell the target of rows, and be measured beside the linear model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from recur.models import RowModel
from recur.tasks.classes import class_scores, classes_of, confusion
from recur.tasks.contract import Predictor, source_name
from recur.tasks.examples import split, test_part
from recur.tasks.predictions import Prediction
from recur.tasks.table.data import Inputs, check_targets, parse_rows, read_rows, unknown_words
from recur.tasks.table.task import RowBatch, TableTask, outputs_of, plain_outputs
from recur.utils.types import JsonObject


class RowPredictor(Predictor[RowModel]):
    """A trained network of one step."""

    takes_lines = False
    task: TableTask

    def _answer(self, found: Prediction) -> str | float:
        answer: str | float = found.get("value", found["output"])
        return answer

    def _evaluate(self, texts: Sequence[str] | None, **options: Any) -> JsonObject:
        """Accuracy, macro F1 and the confusion matrix of classes, R² and RMSE of numbers; the linear model beside."""
        self.refuse(options)
        o, vocabs = self.task.options, self.run.vocabs
        measured = read_rows(texts) if texts else test_part(o, read_rows)
        check_targets(measured, o.target)
        rows = self.task.encode(measured, vocabs)
        outputs, y = outputs_of(self.model, rows)
        found: JsonObject = {"model": self.name, "rows": len(rows), **self._figures(outputs, y)}
        if self.has_training_texts():
            o = self.task.options  # which names the texts where they are now
            train = RowBatch.of(self.task.encode(split(o, read_rows)[0], vocabs))
            plain = plain_outputs(train, RowBatch.of(rows).x, outputs.shape[1], bool(o.classes))
            found["beside"] = [{"model": name, **self._figures(said, y)} for name, said in plain.items()]
        if o.classes:
            table = confusion(y.tolist(), outputs.argmax(-1).tolist(), outputs.shape[1])
            found |= {"classes": list(classes_of(vocabs["labels"])), "confusion": table.tolist()}
        return found

    def _figures(self, outputs: torch.Tensor, y: torch.Tensor) -> JsonObject:
        if self.task.options.classes:
            return class_scores(confusion(y.tolist(), outputs.argmax(-1).tolist(), outputs.shape[1]))
        return dict(self.task.score(outputs, y))

    def _predict(self, lines: Iterable[str], **options: Any) -> Iterator[JsonObject]:
        """A CSV, line by line, with or without the target: its class or number for every row, and which of its words
        were not seen in training."""
        self.refuse(options)
        o = self.task.options
        rows, inputs = parse_rows(lines, source_name(lines)), Inputs.of(self.run.vocabs)
        outputs, _ = outputs_of(self.model, self.task.encode(rows, self.run.vocabs, known=False))
        for row, output in zip(rows, outputs, strict=True):
            given = ",".join(cell for column, cell in row.cells.items() if column != o.target)
            new = unknown_words(row, inputs)
            seen: JsonObject = {"unknown": new} if new else {}
            if o.classes:
                classes = classes_of(self.run.vocabs["labels"])
                chances = dict(zip(classes, output.softmax(-1).tolist(), strict=True))
                yield {"input": given, "output": classes[int(output.argmax())], "probabilities": chances, **seen}
            else:
                value = float(output[0]) * o.column_deviation[-1] + o.column_mean[-1]
                yield {"input": given, "output": f"{value:g}", "value": value, **seen}


PREDICTOR = RowPredictor
