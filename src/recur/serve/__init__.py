"""Server of trained models for many clients at once: `recur serve`.

schemas.py       limits, models of the requests, the OpenAPI document
app.py           routes; server.py runs them under uvicorn
completions.py   /v1/completions; steps.py: sessions; predict.py: predictions and the tokenizer
registry.py      what all requests share; models.py: the served runs; metrics.py: counters for Prometheus
sessions.py      sessions in memory, on disk, or held by a client (state_codec.py)
job.py           the rows of one request in the engine
engine.py        one thread that steps all rows as one batch; sampling.py makes events of the scores
rows.py          one request's work on one slot, and its events
state_pool.py    the states of all sessions by slot, and the networks that step them
http/            what the studio uses too: request models, JSON responses, uvicorn with limits
"""
