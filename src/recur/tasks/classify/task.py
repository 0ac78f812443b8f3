"""A class for every text, n → 1: lines `label TAB text`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from recur.baselines.classifiers import LinearTextClassifier, text_baselines
from recur.data.batching import Shuffled
from recur.data.text import fit_lines, read_labelled
from recur.runs import Vocabs
from recur.tasks.classify.data import Linear, TextBatch, TextData, TextExample, TextModel, encode, ngram_vocab
from recur.tasks.classify.options import ClassifyOptions
from recur.tasks.common.batching import FEW, choose_token, class_examples, with_time_scale
from recur.tasks.common.classification import (
    class_names,
    class_weights,
    label_vocab,
    probability_scores,
    total_weight,
    unseen_labels_note,
    validate_classes,
)
from recur.tasks.common.contract import (
    Baseline,
    PretrainedSlots,
    Task,
    TrainingProgress,
    TrainingStep,
    Validation,
    variable_length_blocker,
)
from recur.tasks.common.options import with_input
from recur.tasks.common.registry import task_of
from recur.tasks.common.splits import check_classes, reading_of, split, with_columns


class ClassifyTask(Task[ClassifyOptions, TextData, TextModel, TextBatch]):
    name = "classify"
    curve = "valid_error"
    unit = "texts"
    places = PretrainedSlots()

    @classmethod
    def settle(cls, options: ClassifyOptions) -> ClassifyOptions:
        options = with_input(options)
        if options.input == "numbers":
            numbers: ClassifyOptions = task_of(options).settle(options)
            return numbers
        options = with_columns(options)
        if options.multi_label:
            several: ClassifyOptions = task_of(options).settle(options)
            return several
        if options.token is None:
            texts = (example.text for example in read_labelled(options.texts, reading=reading_of(options)))
            options = options.changed(token=choose_token(texts))
        options = options.for_token(str(options.token))
        return super().settle(with_time_scale(options, lambda: [text.size for text in cls(options).read().train]))

    def read(self, vocabs: Vocabs | None = None) -> TextData:
        train, valid, _ = split(self.options, read_labelled, self.new_reading())
        check_classes(train)
        if vocabs is None:
            texts, token = [example.text for example in train], self.options.token or "char"
            words = fit_lines(texts, token, **self.options.vocab_options())
            vocabs = {"vocab": words, "labels": label_vocab((example.label for example in train), 2)}
            if self.options.blend:
                vocabs["ngrams"] = ngram_vocab(texts)
        learned, held = encode(train, vocabs, learned=True), encode(valid, vocabs)
        linear = Linear(vocabs, learned, held, self.balanced)
        unseen = unseen_labels_note((example.label for example in valid), vocabs["labels"], "validation text")
        return TextData(vocabs, learned, held, linear, unseen)

    @property
    def balanced(self) -> bool:
        return self.options.class_weights == "balanced"

    def describe(self, data: TextData) -> str:
        words, kind = len(data.vocabs["vocab"]), data.vocabs["vocab"].tokenizer.kind
        classes = len(class_names(data.vocabs["labels"]))
        found = f"{len(data.train):,} training texts, {words:,} tokens ({kind}s), {classes} classes"
        return f"{found}; {data.note}" if data.note else found

    def baselines(self, data: TextData) -> Iterator[Baseline]:
        train, valid = ([(e.text, e.label) for e in part] for part in (data.train, data.valid))
        tokenizer, classes = data.vocabs["vocab"].tokenizer, class_names(data.vocabs["labels"])
        for plain in text_baselines(train, valid, tokenizer, classes, data.linear.fitted):
            scores = probability_scores(plain.log_probabilities([text for text, _ in valid]), [k for _, k in valid])
            metrics = {f"valid_{name}": value for name, value in scores.items()}
            yield Baseline(plain.name, 1 - scores["accuracy"], metrics)

    def new_model(self, vocabs: Vocabs) -> TextModel:
        labels = vocabs["labels"]
        weights, classes = class_weights(labels) if self.balanced else None, len(class_names(labels))
        linear = LinearTextClassifier(vocabs["ngrams"], classes) if self.options.blend else None
        return TextModel(len(vocabs["vocab"]), classes, self.options, weights, linear)

    def batches(self, data: TextData) -> Shuffled[TextExample, TextBatch]:
        return Shuffled(data.train, self.batch, self.options.seed, TextBatch.of, lambda example: example.size)

    def training_step(
        self, model: TextModel, batch: TextBatch, state: tuple[Any, ...] | None, moment: TrainingProgress
    ) -> TrainingStep:
        logits = model(batch.ids.to(model.device), batch.lengths)
        loss = model.loss(logits, batch.classes.to(model.device))
        weight = total_weight(batch.classes, model.class_weights)
        return TrainingStep(loss, len(batch.classes), model.backend, weight=weight)

    def unrecordable(self, data: TextData) -> str:
        return variable_length_blocker((example.size for example in data.train), self.options)

    def divergence_threshold(self, vocabs: Vocabs) -> float:
        return 10 * math.log(max(len(vocabs["labels"]), 3))

    def validate(self, model: TextModel, data: TextData) -> Validation:
        if model.linear is not None and not model.linear.fitted:
            model.linear.load_state_dict(data.linear.fitted.model.state_dict())
        targets = [example.label for example in data.valid]
        used, *apart = model.calibrate(model.parts(data.valid), targets)
        found = validate_classes(used, targets)
        # A few hundred texts tell accuracies apart by chance; the loss, of calibrated probabilities, tells more. The
        # network's own counts as well: the baselines that it is blended with hide what it has not learned.
        alone = probability_scores(apart[0], targets) if apart else {"loss": 0.0}
        found = found._replace(score=found.metrics["valid_loss"] + alone["loss"])
        if not apart:
            return found
        summary = f"{found.summary}, the network alone {alone['accuracy']:.1%}"
        metrics = {**found.metrics, "valid_network_accuracy": alone["accuracy"]}
        return found._replace(metrics=metrics, summary=summary)

    def sample(self, model: TextModel, data: TextData) -> str:
        few = data.valid[:FEW]
        found = model.mixed(model.parts(few)).argmax(-1).tolist()
        return class_examples([e.text for e in few], found, [e.label for e in few], class_names(data.vocabs["labels"]))


TASK = ClassifyTask
