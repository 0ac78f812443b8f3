"""HTTP code that `recur serve` and the studio share: request bodies, JSON responses, and uvicorn with limits."""
