"""Messages: building, translating, storing; and the catalogue against the source."""

from __future__ import annotations

import copy
import pickle
import string

import pytest

from recur.diagnostics.diagnosis import EXPLANATIONS
from recur.diagnostics.finding import CAUSES
from recur.errors import OptionError
from recur.i18n import Message, as_json, catalogue, decode, encode, from_json, map_text, printed, translate
from recur.i18n.catalogue import read_po
from recur.tasks.common.metrics import METRICS


def fields(template: str) -> set[tuple[str, str]]:
    return {(name, spec or "") for _, name, spec, _ in string.Formatter().parse(template) if name}


def test_a_message_is_its_english_sentence() -> None:
    message = Message("{name} is in the queue already", name="a {b}")
    assert message == "a {b} is in the queue already"
    assert translate(message) == message
    assert translate(message, "zh") == "a {b} 已经在队列里"
    for other in (copy.deepcopy(message), pickle.loads(pickle.dumps(message))):
        assert (other, other.msgid, other.values) == (message, message.msgid, message.values)


def test_an_error_keeps_its_message() -> None:
    error = OptionError(Message("there is no state {name}", name="'q'"))
    assert str(error) == "there is no state 'q'"
    assert translate(str(error), "zh") == "没有状态 'q'"


def test_values_are_translated_too() -> None:
    layer = Message("{layer}, {part}", layer=Message("layer {n}, backward", n=2), part="c")
    assert translate(layer, "zh") == "第 2 层，反向 c"
    assert translate("the most frequent class", "zh") == "总答最常见的类别", "a label without values"
    assert translate("no such words", "zh") == "no such words"
    assert translate(Message("no such msgid: {x}", x=Message("layer {n}", n=1)), "zh") == "no such msgid: 第 1 层"


def test_messages_are_stored_and_read_back() -> None:
    message = Message("baseline: {name}, {metric} {figure}", name=Message("{n}-gram", n=6), metric="loss", figure=1.5)
    for other in (from_json(as_json(message)), decode(encode(message))):
        assert translate(other, "zh") == translate(message, "zh") == "基线：6 元语法，损失 1.5"
    assert decode("a line that somebody printed") == "a line that somebody printed"
    assert decode('{"message": {"msgid": "{x:1000000000}", "values": {"x": 1}, "text": "no"}}') == "no", (
        "no msgid of ours"
    )
    broken = {"msgid": "{n:g} minutes", "values": {"n": "many"}, "text": "many minutes"}
    assert from_json(broken) == "many minutes", "values of another kind"
    assert map_text(message, str.upper).endswith(" LOSS 1.5"), "of the values, not of the msgid"


def test_a_process_prints_messages_as_json_if_another_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    message = Message("{n}-gram", n=6)
    assert printed(message) == "6-gram"
    monkeypatch.setenv("RECUR_MESSAGES", "json")
    assert decode(printed(message)) == message
    assert printed("step 1") == "step 1"


def test_po_files_are_read_as_babel_reads_them() -> None:
    from babel.messages import pofile

    from recur.i18n.catalogue import catalogue_file

    with catalogue_file("zh").open("rb") as file:
        found = pofile.read_po(file)
    expected = {(entry.context or "", str(entry.id)): str(entry.string) for entry in found if entry.id and entry.string}
    assert catalogue("zh") == expected
    left_out = '#, fuzzy\nmsgid "a"\nmsgstr "b"\n\n#~ msgid "c"\n#~ msgstr "d"\n\n'
    assert read_po(left_out + 'msgctxt "x"\nmsgid ""\n"two\\n"\n"lines"\nmsgstr "e"\n') == {("x", "two\nlines"): "e"}


def test_the_catalogue_is_up_to_date_and_complete(capsys: pytest.CaptureFixture[str]) -> None:
    from tools.messages import main

    assert main(["--check"]) == 0, capsys.readouterr().out


def test_a_translation_has_the_same_values() -> None:
    entries = {msgid: text for (context, msgid), text in catalogue("zh").items() if not context}
    assert [msgid for msgid, text in entries.items() if fields(msgid) != fields(text)] == []


def test_labels_of_tables_have_a_translation() -> None:
    labels = {*CAUSES, *(metric.words for metric in METRICS.values())}
    assert {label for label in labels if ("", label) not in catalogue("zh")} == set()


def test_every_probe_is_explained() -> None:
    assert set(EXPLANATIONS) == set(CAUSES)
