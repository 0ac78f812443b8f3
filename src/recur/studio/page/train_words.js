// The words of Train.

import { words } from "./words.js";

words({
  train_new: "A new training", train_paste: "Paste a text or a table here, or drop a file", train_file: "choose a file …",
  train_or: "or", train_here: "one that is here …", train_pydoc: "pydoc: Python's language reference", train_stdlib: "stdlib: Python's own sources",
  train_limit: "A text has at most {most}, and is kept in the folder texts beside the runs.", train_too_large: "The file is too large: at most {most}",
  train_sending: "{name}: {share} % sent", train_lost: "The studio does not answer.", train_holds: "It holds {why}.", train_looks: "It looks like {why}. What to learn from it?",
  train_cell: "cell", train_hidden_size: "units in a layer", train_num_layers: "layers", train_lr: "learning rate", train_budget: "train for",
  train_minutes: "minutes", train_steps: "steps", train_epochs: "epochs", train_name: "name of the run", train_auto: "by itself",
  train_default: "default: {value}", train_on: "on", train_off: "off", train_gpu: "on a GPU", train_words: "words", train_subwords: "subwords", train_more: "More options of {task}", train_find: "find an option",
  train_count: "{n} options", train_own: "{task} alone", train_start: "Start training", train_queue: "Add to the queue",
  train_keep: "goes on when the studio ends", train_no_text: "Paste a text, choose a file, or take one that is here.",
  train_read_only: "This studio was started with --read-only: it shows runs and trains none.",
  train_stop: "Stop", train_stop_now: "Stop at once", train_resume: "Resume", train_begin: "Start again", train_remove: "Remove",
  train_progress: "progress", train_time: "trained", train_left: "left", train_samples: "What it writes", train_examples: "Validation examples, and what it says of them",
  train_jobs: "Queue", train_place: "waits, {n}.", train_go_on: "Go on with a run", train_further: "for so many minutes more",
  train_state_running: "training", train_state_stopping: "is being saved", train_state_stopped: "stopped; can be resumed", train_state_done: "finished",
  train_state_failed: "failed", train_state_waiting: "waits", train_state_held: "had not begun",
  options_Data: "Data", options_Tokens: "Tokens", "options_Language model": "Language model", "options_Encoder and decoder": "Encoder and decoder", options_Network: "Network",
  options_Regularisation: "Regularisation", options_Decoder: "Decoder", options_Optimisation: "Optimisation", options_Budget: "Budget", options_Machine: "Machine",
});
