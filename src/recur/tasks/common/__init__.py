"""Parts that all tasks share: contract, options, registry, predictor, metrics, batching."""
