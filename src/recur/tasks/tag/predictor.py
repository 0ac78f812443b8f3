"""Trained tagger: tagging, evaluation against baselines, and streaming."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Annotated, Any

import torch

from recur.baselines.transducers import tagging_baselines
from recur.data.text import Sentence, read_tagged, read_words
from recur.data.text.recognition import has_columns
from recur.data.text.tables import is_table
from recur.errors import OptionError, TextError, shown
from recur.i18n import Message
from recur.models.tagger import TaggerEnsemble
from recur.options import Range, checked
from recur.runs import Run
from recur.tasks.common.classification import class_names
from recur.tasks.common.predictor import Prediction, PredictionInputs, Predictor
from recur.tasks.common.splits import split
from recur.tasks.tag.data import Collate, by_type, compare, encode, unseen_tags
from recur.tasks.tag.task import AnyTagger, TagsWords, TagTask, linear_of, tag, tag_confusion
from recur.utils.types import JsonObject

ROWS = 64
"""Sentences tagged as one batch."""

NBEST = Annotated[int, Range("be a whole number in 1 … 1000", 1, 1000)]
"""How many sequences of tags can be asked for."""

NEVER = -1e4
"""log P of a sequence of tags that no rule allows lies below."""


class TextTagger(Predictor[AnyTagger]):
    """Trained tagger, or an ensemble."""

    task: TagTask
    takes_words = True
    ensembles = True

    def __init__(self, task: TagTask, runs: Sequence[Run], device: str = "auto") -> None:
        super().__init__(task, runs, device)
        self.tagger: TagsWords = self.model if len(self.models) == 1 else TaggerEnsemble(self.models).eval()

    @property
    def tags(self) -> tuple[str, ...]:
        return class_names(self.run.vocabs["labels"])

    def _answer(self, found: Prediction) -> list[str]:
        tags: list[str] = found["tags"]
        return tags

    def read_inputs(self, name: str) -> Iterable[tuple[str, ...]] | None:
        """Sentences of words that stand below each other, with or without their tags."""
        reading = self.new_reading()
        if not is_table(name) and not has_columns(name, reading):
            return None
        return (sentence.words for sentence in read_words(name, self.task.options.columns, reading))

    def write(self, found: JsonObject, made: JsonObject, score: float | None = None) -> str:
        """A line in a line; words that stood below each other with a tag beside each, and an empty line."""
        if isinstance(found["input"], str):
            return super().write(found, made, score)
        rows = (f"{word}\t{tag}\n" for word, tag in zip(found["words"], made["tags"], strict=True))
        return "".join([*([] if score is None else [f"# {score:.4f}\n"]), *rows])

    def _evaluate(self, texts: Sequence[str] | None, **options: Any) -> JsonObject:
        """Of spans precision, recall and F1, all together and by type; else accuracy, macro F1 and the confusion matrix
        of all words. Beside them plain models, where what it learned from is here."""
        self.refuse(options)
        read = partial(read_tagged, columns=self.task.options.columns)
        sentences = self.examples(texts, read)
        targets = [sentence.tags for sentence in sentences]
        words = sum(map(len, targets))
        begun = time.perf_counter()
        found = tag(self.tagger, encode(sentences, self.run.vocabs), self.run.vocabs)
        rate = words / (time.perf_counter() - begun)
        beside: list[JsonObject] = []
        if self.has_training_texts():
            train, linear = split(self.task.options, read)[0], linear_of(self.tagger)
            for name, tags in tagging_baselines(train, sentences, linear):
                beside.append({"model": name, **self.task.measure(targets, tags, self.tags)})
        result: JsonObject = {"model": self.name, **self.task.measure(targets, found.tags, self.tags)}
        if found.loss is not None:
            result["loss"] = found.loss
        result |= {"words": words, "words_per_second": rate, "beside": beside}
        if unseen := unseen_tags(sentences, self.run.vocabs):
            result |= {"unseen": unseen.total() / words, "unseen_tags": dict(unseen.most_common())}
        if self.task.options.spans:
            result["types"] = by_type(compare(targets, found.tags))
        names, table = tag_confusion(targets, found.tags, self.tags)
        return result | {"classes": names, "confusion": table.tolist()}

    def _predict(
        self, lines: Iterable[Any], nbest: int = 1, marginals: bool = False, **options: Any
    ) -> Iterator[JsonObject]:
        """The tags of each line's words, which stand between spaces, or of lists of words; with the probability of
        each, and the `nbest` likeliest for the whole line. `marginals` are the probabilities of all tags."""
        if options.get("beam") == nbest:  # as the command line has it for models that search
            options.pop("beam")
        self.refuse(options)
        checked("nbest", nbest, NBEST)
        rows = max(1, ROWS // nbest)
        inputs = iter(lines)
        while batch := list(itertools.islice(inputs, rows)):
            for given, found in zip(batch, self._tagged([*map(_words, batch)], nbest, marginals), strict=True):
                yield {"input": given if isinstance(given, str) else list(given), **found}

    @torch.no_grad()
    def _tagged(self, given: Sequence[tuple[str, ...]], nbest: int, marginals: bool) -> Iterator[JsonObject]:
        sentences = [Sentence(words, (), "") for words in given]
        batch = Collate(self.run.vocabs, linear_of(self.tagger))(encode(sentences, self.run.vocabs))
        counts, decoder = batch.words.counts, self.tagger.decoder
        scores = self.tagger.scores(batch.words.to(self.device))
        best = decoder.nbest(scores, counts, nbest)
        chances = decoder.marginals(scores, counts)
        for b, sentence in enumerate(sentences):
            count = len(sentence.words)
            made = []
            for k in range(nbest):
                numbers, score = best.tags[b, k, :count], float(best.scores[b, k])
                if k and score < NEVER:
                    break  # there are no more
                tags = [self.tags[i] for i in numbers.tolist()]
                chosen = chances[b, :count].gather(1, numbers[:, None])[:, 0].tolist()
                made.append({"output": " ".join(tags), "tags": tags, "probability": chosen, "score": score})
            found = {"words": list(sentence.words), **made[0]}
            if marginals:
                rows = chances[b, :count].tolist()
                found["probabilities"] = [dict(zip(self.tags, row, strict=True)) for row in rows]
            yield found | ({"nbest": made} if nbest > 1 else {})

    def probabilities(self, given: Any) -> Any:
        """Return the probability of every tag for each word of a text, or a list of them for several texts."""
        found = self.predict(given, marginals=True)
        return found["probabilities"] if isinstance(found, Prediction) else [one["probabilities"] for one in found]

    def stream(self, words: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Each word with its tag as soon as it is read, in constant memory; for a network that reads forward."""
        if self.task.options.crf and self.task.options.recurrence == "hidden":
            raise OptionError(f"{self.run.path} tags a sentence as a whole; stream a run trained with --no-crf")
        if len(self.models) > 1:
            raise OptionError("words are tagged as they come in by one run, not by several as one")
        state, first, collate = None, True, Collate(self.run.vocabs)
        for word in PredictionInputs(words, files=False):
            # a space in front, as between the words of a sentence
            spelled = encode([Sentence((word,) if first else ("", word), (), "")], self.run.vocabs)[0]
            batch = collate([spelled]).words.to(self.device)
            begin = 0 if first else spelled.ends[0] + 1
            for t in range(begin, len(spelled.ids)):
                forms = batch.forms and batch.forms._replace(which=batch.forms.which[:, t : t + 1])
                logits, state = self.model.step(batch.ids[:, t], state, forms)
            first = False
            yield word, self.tags[int(logits.argmax())]


def _words(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return the words of a line, or the given words."""
    words = tuple(given.split() if isinstance(given, str) else given)
    if not words or not all(isinstance(word, str) and word for word in words):
        raise TextError(
            Message("a sentence is words between spaces, or a list of them, got {given}", given=shown(given))
        )
    return words


PREDICTOR = TextTagger
