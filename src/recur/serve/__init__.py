"""Server of trained models for many clients at once: `recur serve`.

schemas.py       limits, models of the requests, the OpenAPI document
app.py           routes; predictions and the tokenizer
completions.py   /v1/completions; steps.py: sessions
registry.py      what all requests share, its metrics, and the server that starts and stops it
models.py        the served runs, and inputs of requests for them
sessions.py      sessions in memory, on disk, or held by a client
engine.py        one thread that steps all rows as one batch, and the rows of one request in it
sampling.py      events from the scores; rows.py: one request's work on one slot
state_pool.py    the states of all sessions by slot, and the networks that step them
http.py, server.py, address.py    shared with the studio: request models, JSON responses, uvicorn with limits
"""
