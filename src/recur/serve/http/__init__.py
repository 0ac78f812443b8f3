"""What the servers share: uvicorn with limits, the checks before a request, JSON in and out."""
