// The words of Train.

import { words } from "./words.js";

words({
  train_new: "New training run", train_paste: "Paste a text or a table here, or drop a file", train_file: "choose a file …",
  train_or: "or", train_here: "a file on the server …", train_pydoc: "pydoc: Python's language reference", train_stdlib: "stdlib: Python's own sources",
  train_limit: "At most {most}. Texts are saved in the folder texts next to the runs.", train_too_large: "The file is too large: at most {most}.",
  train_sending: "Uploading {name}: {share} %", train_lost: "The studio does not respond.", train_holds: "Detected: {why}.", train_looks: "This looks like {why}. Choose the task:",
  train_cell: "cell", train_hidden_size: "hidden size", train_num_layers: "layers", train_lr: "learning rate", train_budget: "train for",
  train_minutes: "minutes", train_steps: "steps", train_epochs: "epochs", train_name: "name of the run", train_auto: "automatic",
  train_default: "default: {value}", train_on: "on", train_off: "off", train_gpu: "on a GPU", train_words: "words", train_subwords: "subwords", train_more: "More options of {task}", train_find: "search options",
  train_count: "{n} options", train_own: "only for {task}", train_start: "Start training", train_queue: "Add to the queue",
  train_keep: "keep training when the studio exits", train_no_text: "Paste a text, choose a file, or select one on the server.",
  train_read_only: "This studio was started with --read-only: it cannot train.",
  train_stop: "Stop", train_stop_now: "Stop without saving", train_resume: "Resume", train_begin: "Start again", train_remove: "Remove",
  train_progress: "progress", train_time: "training time", train_left: "remaining", train_samples: "Samples", train_examples: "Predictions on validation examples",
  train_jobs: "Queue", train_place: "waiting, position {n}", train_go_on: "Resume a run", train_further: "additional minutes",
  train_state_running: "training", train_state_stopping: "saving", train_state_stopped: "stopped; can be resumed", train_state_done: "finished",
  train_state_failed: "failed", train_state_waiting: "waiting", train_state_held: "not started",
  options_Data: "Data", options_Tokens: "Tokens", "options_Language model": "Language model", "options_Encoder and decoder": "Encoder and decoder", options_Network: "Network",
  options_Regularisation: "Regularisation", options_Decoder: "Decoder", options_Optimisation: "Optimisation", options_Budget: "Budget", options_Machine: "Machine",
});
