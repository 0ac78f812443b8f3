"""Language models: which token of a text comes next."""
