"""Suggestions for unknown options, shared by flags, TOML keys and Python keywords."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from recur.errors import LISTED, listed, shown
from recur.i18n import Message

SYNONYMS: dict[str, tuple[str, ...]] = {
    "lr": ("rate", "learning_rate", "learn_rate", "eta", "step_size", "initial_lr", "lr0", "max_lr"),
    "batch_size": ("batch", "bs", "train_batch_size", "per_device_train_batch_size", "minibatch_size", "bsz"),
    "hidden_size": ("hidden", "units", "num_units", "n_units", "hidden_dim", "hidden_units", "nhid", "n_hidden",
                    "rnn_size", "rnn_units", "state_size", "d_model", "num_hidden"),
    "num_layers": ("layers", "n_layers", "nlayers", "num_hidden_layers", "n_layer", "num_rnn_layers"),
    "embedding_size": ("embedding", "embedding_dim", "embed_dim", "emb_size", "emsize", "word_dim", "output_dim"),
    "dropout": ("dropout_input", "dropout_hidden", "dropout_output", "drop", "dropout_rate", "recurrent_dropout"),
    "epochs": ("num_epochs", "num_train_epochs", "n_epochs", "max_epochs", "iterations"),
    "steps": ("max_steps", "num_steps", "train_steps", "max_iter", "max_iters", "num_iterations"),
    "minutes": ("max_time", "time_limit", "max_minutes"),
    "grad_clip": ("clip", "clip_grad", "clip_grad_norm", "gradient_clip_val", "max_grad_norm", "clipnorm",
             "max_norm"),
    "grad_clip_value": ("clip_value", "clipvalue", "clip_grad_value"),
    "weight_decay": ("wd", "l2", "l2_regularization", "kernel_regularizer"),
    "optimizer": ("optim", "optimiser", "solver"),
    "schedule": ("scheduler", "lr_scheduler", "lr_scheduler_type", "lr_schedule"),
    "warmup_steps": ("warmup", "num_warmup_steps", "warm_up"),
    "gradient_accumulation_steps": ("accumulate", "accumulate_grad_batches", "grad_accum", "accum_steps"),
    "precision": ("dtype", "fp16", "bf16", "amp", "mixed_precision", "torch_dtype"),
    "seed": ("random_state", "random_seed", "manual_seed"),
    "patience": ("early_stopping", "early_stopping_patience", "n_iter_no_change"),
    "cell": ("rnn_type", "cell_type", "model_type", "rnn", "arch", "architecture", "model"),
    "direction": ("bidirectional", "go_backwards", "reverse"),
    "device": ("gpu", "cuda", "accelerator", "no_cuda"),
    "threads": ("num_threads", "n_jobs", "num_workers", "workers"),
    "bptt": ("seq_len", "sequence_length", "bptt_len", "truncated_bptt_steps"),
    "out": ("output_dir", "out_dir", "save_dir", "default_root_dir", "logdir", "log_dir", "save"),
    "from": ("pretrained", "from_pretrained", "init_from", "load", "model_name_or_path", "warm_start"),
    "tie_weights": ("tied", "tie_word_embeddings", "tied_weights"),
    "valid": ("validation", "validation_file", "val", "dev", "eval_file", "validation_data"),
    "test": ("test_file", "test_data"),
    "texts": ("train_file", "data", "input_file", "dataset", "data_dir"),
    "token": ("tokenizer", "level", "tokenization", "analyzer"),
    "min_freq": ("min_count", "min_df", "min_frequency"),
    "max_vocab_size": ("max_size", "vocab_size", "max_vocab", "max_features", "num_words", "max_tokens"),
    "pieces": ("vocab_size", "num_pieces", "bpe_size"),
    "horizon": ("prediction_length", "forecast_horizon", "pred_len", "h", "n_ahead"),
    "lags": ("context_length", "lookback", "input_chunk_length"),
    "checkpoint_every": ("checkpoint", "save_steps", "save_every"),
    "eval_every": ("measure", "eval_steps", "val_check_interval", "evaluation_strategy"),
    "label_smoothing": ("smoothing", "label_smoothing_factor"),
    "beam": ("num_beams", "beam_size", "beam_width"),
    "samples": ("num_return_sequences", "num_samples", "n_samples"),
    "length": ("max_new_tokens", "num_tokens"),
    "max_length": ("longest", "max_len", "max_target_length"),
    "teacher_forcing": ("teacher", "teacher_forcing_ratio"),
    "auto_size": ("sized",),
    "num_encoder_layers": ("encoder_layers",),
}  # fmt: skip
"""Names that PyTorch, Hugging Face, Keras, Lightning and scikit-learn users try, by the option that they mean. The
names in one line are interchangeable: a suggestion is whichever of them exists."""


def unknown_option(name: object, known: Iterable[str]) -> str:
    """Return the message for an option that does not exist, with the nearest known option.

    A name that starts with `--` is a flag; then `known` are flags as well, and are not listed: --help lists them.

    >>> unknown_option("--learning-rate", ["--lr", "--cell"])
    'unknown option --learning-rate; did you mean --lr?'
    >>> unknown_option("learning_rate", ["lr", "cell"])
    "unknown option 'learning_rate'; did you mean 'lr'?"
    """
    names = sorted(known)
    if not isinstance(name, str):
        return Message("unknown {kind} {name}; known: {known}", kind="option", name=shown(name), known=listed(names))
    flag = name.startswith("-")
    near = suggest_option(name, names)
    if near is not None:
        return f"unknown option {name if flag else shown(name)}; did you mean {near if flag else repr(near)}?"
    return (
        f"unknown option {name}."
        if flag
        else Message("unknown {kind} {name}; known: {known}", kind="option", name=shown(name), known=listed(names))
    )


def suggest_option(name: str, known: Iterable[str]) -> str | None:
    """Return the known option that is nearest to a name by synonym or by spelling; None if none is near."""
    spellings = {_normalize(option): option for option in known}
    for final, synonyms in SYNONYMS.items():
        exists = next((spellings[each] for each in (final, *synonyms) if each in spellings), None)
        if exists is not None:
            for each in (final, *synonyms):
                spellings.setdefault(each, exists)
    near = difflib.get_close_matches(_normalize(name[:LISTED]), spellings, n=1)
    return spellings[near[0]] if near else None


def _normalize(name: str) -> str:
    return name.lstrip("-").replace("-", "_").rstrip("_").lower()
