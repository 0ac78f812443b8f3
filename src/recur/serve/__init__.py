"""Trained models for many at once: `recur serve`.

engine.py       one thread that steps all waiting sessions as one batch; bank.py has their states by slot
network.py      what it steps: a language model, a tagger, a classifier, of tokens or of numbers
rows.py         one request's reading and writing on one slot; text.py makes text of tokens
sessions.py     which session is where: in a slot, on disk, in a client's hands (travel.py)
models.py       the runs that are served, and their newer weights
app.py          the routes; completions.py, steps.py, predict.py and tokenizer.py answer, openapi.py describes them
"""
