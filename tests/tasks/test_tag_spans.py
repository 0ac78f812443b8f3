"""Spans: against seqeval, and against conlleval's own rules written down again."""

from __future__ import annotations

import itertools
import random
import warnings

import pytest
from seqeval.metrics import classification_report
from seqeval.metrics.sequence_labeling import get_entities

from recur.tasks.tag.data import are_spans, by_type, compare, legal_moves, span_scores, spans

TAGS = ["O", "B-NP", "I-NP", "E-NP", "S-NP", "B-VP", "I-VP", "E-VP", "S-VP", "B-A-B", "I-A-B"]


def sentences(seed: int, tags: list[str], count: int = 60) -> list[list[str]]:
    draw = random.Random(seed)
    return [draw.choices(tags, k=draw.randint(1, 12)) for _ in range(count)]


def conlleval(sentences: list[list[str]], guesses: list[list[str]]) -> tuple[float, float, float]:
    """Precision, recall and F1 by the counting loop of conlleval.pl (Tjong Kim Sang 2000): a span is right where both
    begin together, stay of one type and end together."""

    def chunk_tag(tag: str) -> tuple[str, str]:
        letter, _, kind = tag.partition("-")
        return letter, kind

    def ends(last: tuple[str, str], now: tuple[str, str]) -> bool:
        pairs = {("B", "B"), ("B", "O"), ("I", "B"), ("I", "O"), ("E", "E"), ("E", "I"), ("E", "O"), ("B", "S")}
        pairs |= {("I", "S")}
        change = last[0] not in ("O", ".") and last[1] != now[1]
        return (last[0], now[0]) in pairs or change or last[0] in ("E", "S")

    def begins(last: tuple[str, str], now: tuple[str, str]) -> bool:
        pairs = {("B", "B"), ("I", "B"), ("O", "B"), ("O", "I"), ("E", "E"), ("E", "I"), ("O", "E"), ("S", "I")}
        pairs |= {("S", "E")}
        change = now[0] not in ("O", ".") and last[1] != now[1]
        return (last[0], now[0]) in pairs or change or now[0] in ("B", "S")

    right = found_correct = found_guessed = 0
    inside = False
    last, last_guess = ("O", ""), ("O", "")
    gold = [chunk_tag(tag) for sentence in sentences for tag in [*sentence, "O"]]
    guessed = [chunk_tag(tag) for sentence in guesses for tag in [*sentence, "O"]]
    for now, guess in zip(gold, guessed, strict=True):
        if inside:
            both_end = ends(last, now) and ends(last_guess, guess)
            if both_end and last_guess[1] == last[1]:
                inside = False
                right += 1
            elif ends(last, now) != ends(last_guess, guess) or guess[1] != now[1]:
                inside = False
        if begins(last, now) and begins(last_guess, guess) and guess[1] == now[1]:
            inside = True
        found_correct += begins(last, now)
        found_guessed += begins(last_guess, guess)
        last, last_guess = now, guess
    precision, recall = right / max(found_guessed, 1), right / max(found_correct, 1)
    return precision, recall, 2 * precision * recall / ((precision + recall) or 1)


@pytest.mark.parametrize("tags", [TAGS, TAGS[:3], ["O", "B", "I"], ["I-NP", "I-VP"], ["O", "S-NP", "E-NP", "I-VP"]])
def test_spans_are_seqevals(tags: list[str]) -> None:
    for sentence in sentences(0, tags):
        assert [tuple(span) for span in spans(sentence)] == get_entities(sentence)


@pytest.mark.parametrize("tags", [TAGS, TAGS[:3], ["I-NP", "I-VP", "O", "B-NP"]])
def test_scores_are_those_of_seqeval_and_conlleval(tags: list[str]) -> None:
    draw = random.Random(3)
    gold = sentences(1, tags)
    guessed = [[tag if draw.random() < 0.8 else draw.choice(tags) for tag in sentence] for sentence in gold]
    found = compare(gold, guessed)
    scores, types = span_scores(found), by_type(found)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = classification_report(gold, guessed, output_dict=True, zero_division=0)
    assert 0.2 < scores["f1"] < 0.9
    for kind, row in {**types, "micro avg": scores}.items():
        theirs = report[kind]
        expected = (theirs["precision"], theirs["recall"], theirs["f1-score"])
        assert (row["precision"], row["recall"], row["f1"]) == pytest.approx(expected, abs=1e-12)
        assert row.get("spans", theirs["support"]) == theirs["support"]
    assert (scores["precision"], scores["recall"], scores["f1"]) == pytest.approx(conlleval(gold, guessed), abs=1e-12)


def test_nothing_found_is_zero() -> None:
    assert span_scores(compare([["B-NP"]], [["O"]])) == {"precision": 0.0, "recall": 0.0, "f1": 0.0}
    assert span_scores(compare([["O"]], [["O"]]))["f1"] == 0.0


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        (["O", "B-NP", "I-NP"], True),
        (["I-NP", "B-NP"], True),
        (["O", "B", "I"], True),
        (["O", "B-PER", "E-PER", "S-PER"], True),
        (["NOUN", "VERB", "O"], False),
        (["O"], False),
        (["O", "S"], False),
        (["B-NP", "I-NP", "B"], False),
        (["B-NP", "X"], False),
    ],
)
def test_which_tags_mark_spans(tags: list[str], expected: bool) -> None:
    assert are_spans(tags) == expected


@pytest.mark.parametrize("tags", [TAGS[:1] + TAGS[1:3] + TAGS[5:7], TAGS[:9], ["O", "B", "I"]])
def test_legal_moves_are_those_that_spans_are_written_with(tags: list[str]) -> None:
    """Every sentence of four words that is what its own spans are written as, and no other, goes by the rules."""
    bioes = any(tag[0] in "ES" for tag in tags)
    legal = legal_moves(tags)

    def written(sentence: tuple[str, ...]) -> tuple[str, ...]:
        made = ["O"] * len(sentence)
        for kind, start, end in spans(sentence):
            letters = ["B", *"I" * (end - start)]
            if bioes:
                letters = ["S"] if start == end else [*letters[:-1], "E"]
            made[start : end + 1] = [letter if kind == "_" else f"{letter}-{kind}" for letter in letters]
        return tuple(made)

    for length in (1, 3):
        for path in itertools.product(range(len(tags)), repeat=length):
            allowed = legal.start[path[0]] and legal.end[path[-1]]
            allowed = allowed and all(legal.between[a, b] for a, b in itertools.pairwise(path))
            sentence = tuple(tags[k] for k in path)
            assert allowed == (written(sentence) == sentence), sentence
