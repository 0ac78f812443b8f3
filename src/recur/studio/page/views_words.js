// The names of the views, for the menu and their titles, and the line below each.

import { words } from "./words.js";

words({
  instead_write: "This run is not a language model. Try it here:", instead_predict: "This run is a language model, which generates text:",
  instead_see: "This network has no state along time that could be shown over a text. See its predictions here:",
  instead_gradients: "For this task, X-ray measures how far gradients flow:",
  view_runs: "Runs",
  lead_runs: "Compare the curves of runs; a run in training is updated live. Dashed lines are baselines. "
    + "Each task has its own charts.",
  view_train: "Train",
  lead_train: "Paste a text or a table, or choose a file. The task is detected, and every other option has a "
    + "default. Training continues when you close this page; further runs wait in a queue.",
  view_write: "Write",
  lead_write: "Type to see the probabilities of the next token. Click a token to insert it, or generate text.",
  view_predict: "Predict",
  lead_predict: "Enter an input of the run's task to see the model's prediction and its mistakes.",
  view_see: "See",
  lead_see: "Activations while the network reads: one unit over the text, all units over time, and "
    + "positions with a similar state.",
  view_gradients: "Gradients",
  lead_gradients: "The gradient of a loss, step by step back through time. Detach, truncate or rescale W to see "
    + "what remains.",
  view_xray: "X-ray",
  lead_xray: "Diagnosis of the run with its evidence and what to try next, followed by all probes.",
  view_step: "Step",
  lead_step: "One step of a recurrent network with all its numbers, forward and backward. Change a number to "
    + "see what depends on it.",
  view_unfold: "Unfold",
  lead_unfold: "Structure diagrams: patterns of recurrent networks unrolled along time, trees, grids, and the "
    + "cells of LSTM and GRU. U multiplies the input, W the state, V gives the output; D, H, K are their sizes.",
  view_labs: "Labs",
  lead_labs: "The textbook's arguments as experiments: change a parameter and the experiment runs again.",
});
