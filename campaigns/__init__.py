"""Campaigns: what a user's bad day may bring, tried many times. `python -m campaigns` lists them."""
