"""What a client may ask for at most. Every one of them is refused in one line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    body: int = 1 << 20
    """Bytes of a request, and of a message on a WebSocket."""
    requests: int = 1024
    """Requests at once; one more is told to try again."""
    rate: float = 0.0
    """Requests a second of one token, over any ten seconds; 0 for no limit."""
    seconds: float = 600.0
    """For one request."""
    max_tokens: int = 4096
    """Written behind one prompt."""
    prompt_tokens: int = 1 << 18
    """Read by one request."""
    choices: int = 256
    """Prompts times n of one request."""
    rows: int = 4096
    """Prompts that are under way at once, beside the sessions'."""
    sessions: int = 10_000
    """In memory."""
    stored: int = 1_000_000
    """On disk."""
    idle: float = 1800.0
    """Seconds after which a session that nobody uses leaves memory: to disk, or for good."""
    keep: float = 86_400.0
    """Seconds after which one on disk is gone, and a token of one says nothing."""
    steps: int = 4096
    """Sessions stepped by one message, and inputs of one of them."""
    unread: int = 64
    """Pieces that a client may leave unread before its stream is passed over."""
    stops: int = 16
    """Strings at which to stop; 4 of OpenAI's, and lm-eval gives more."""
    logprobs: int = 20
    grace: float = 30.0
    """Seconds that running requests have once the server is to stop."""
