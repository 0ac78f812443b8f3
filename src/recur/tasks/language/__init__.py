"""Language models: prediction of the next token of a text."""
