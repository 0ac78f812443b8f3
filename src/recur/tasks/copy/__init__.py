"""The copying problem: ten symbols, a long silence, and the ten again."""
