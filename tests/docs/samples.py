"""The files that the documents speak of, small."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
from PIL import Image

TEXT = "The network reads a word, and the word is kept. A state keeps the word.\n"


def write_files(here: Path) -> None:
    """Under the names that README and docs use."""
    texts = {
        "book.txt": TEXT * 60,
        "chapter.txt": TEXT * 3,
        "test.txt": "The network keeps a word.\n" * 5,
        "words.txt": "abc\nbca\n",
        "surnames.txt": "abc\nbca\n",
        "texts.txt": "good and short\nbad and long\n" * 40,
        "sentences.txt": "the w1\nw2\n",
        "labels.txt": "a b c a\nb c a\n" * 20,
        "glove.txt": vectors(),
        "glove.6B.100d.txt": vectors(),
    }
    with gzip.open(here / "cc.de.300.vec.gz", "wt") as file:
        file.write("5 8\n" + vectors())
    texts |= {f"{name}.tsv": labelled() for name in ("names", "reviews", "train", "lines", "test")}
    texts["train.tsv"] = "".join(f"{('pos', 'neg')[k % 2]}\tgood and the bad {k}\n" for k in range(60))
    texts["pairs.tsv"] = texts["test.tsv"] = "".join(f"a{k}bc\tc b {k % 7} a\n" for k in range(100))
    texts["reviews.csv"] = "label,text\n" + "".join(f"{('pos', 'neg')[k % 2]},good {k}\n" for k in range(100))
    for name in ("tagged", "chunks", "tags", "first", "last"):
        texts[f"{name}.conll"] = "".join(f"the\tDT\nw{k}\tNN\n\n" for k in range(60))
    texts["test.conll"] = texts["tagged.conll"]
    texts["ner.conll"] = "".join(f"the DT O\nw{k} NN B-X\n\n" for k in range(60))
    texts["treebank.conllu"] = "".join(conllu(k) for k in range(60))
    texts["trees.txt"] = "".join(f"({k % 3} (1 a) ({k % 2} b))\n" for k in range(60))
    for part in ("train", "test"):
        texts[f"{part}.de"] = "".join(f"das wort {k % 9} kommt heute\n" for k in range(60))
        texts[f"{part}.en"] = "".join(f"the word {k % 9} comes today\n" for k in range(60))
    rows = [f"{1949 + k // 12}-{k % 12 + 1:02},{100 + k + (k % 12) ** 2}\n" for k in range(120)]
    texts["airline.csv"] = "Month,Passengers\n" + "".join(rows)
    rows = [f"2020-01-{1 + k // 24:02} {k % 24:02}:00,{k % 24 + k % 7}\n" for k in range(24 * 21)]
    texts["load.csv"] = "Hour,Load\n" + "".join(rows)
    for name, text in texts.items():
        (here / name).write_text(text, encoding="utf-8")
    write_arrays(here)


def labelled() -> str:
    return "".join(f"{('Greek', 'Irish')[k % 2]}\tNabc{k}\n" for k in range(100))


def vectors() -> str:
    return "".join(f"{word} {' '.join(['0.1', '-0.2'] * 4)}\n" for word in ("good", "bad", "the", "Nabc1", "w1"))


def conllu(k: int) -> str:
    end = "\t_\t_\t0\troot\t_\t_\n"
    return f"1\tthe\tthe\tDET\t_{end}2\tw{k}\tw\tNOUN\t_{end}\n"


def write_arrays(here: Path) -> None:
    draw = np.random.default_rng(0)
    np.savez(here / "digits.npz", images=draw.integers(0, 17, (60, 8, 8)), target=np.arange(60) % 10)
    np.savez(here / "mnist.npz", images=draw.integers(0, 17, (60, 8, 8)), target=np.arange(60) % 10)
    np.savez(here / "test.npz", images=draw.integers(0, 256, (6, 8, 8)), target=np.array(["cat", "dog"] * 3))
    for name in ("pets/cat/{}.png", "pets/dog/{}.png", "more-images/{}.png"):
        for k in range(20):
            path = here / name.format(k)
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(draw.integers(0, 256, (8, 8), dtype=np.uint8)).save(path)
    (here / "cat.png").write_bytes(path.read_bytes())
    np.save(here / "one.npy", draw.normal(size=(30, 3)))
    np.savetxt(here / "other.csv", draw.normal(size=(20, 3)), delimiter=",")
    np.savez(here / "strokes.npz", x=draw.normal(size=(60 * 7, 2)), lengths=np.full(60, 7), y=np.arange(60) % 3)
