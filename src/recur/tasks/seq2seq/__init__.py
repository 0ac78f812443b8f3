"""Sequences from sequences: pairs, an encoder and a decoder."""
