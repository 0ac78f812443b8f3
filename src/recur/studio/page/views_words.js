// The names of the views, for the menu and their titles, and the line below each.

import { words } from "./words.js";

words({
  instead_write: "It answers inputs and writes no text on:", instead_predict: "It is a language model, which writes on:",
  instead_see: "Its network carries no state along time that could be drawn over a text. What it makes of an input is here:",
  instead_gradients: "How far its gradients reach along time is measured by X-ray:",
  instead_unfold: "What it is made of is told by X-ray, and what it answers here:",
  view_runs: "Runs",
  lead_runs: "Compare curves; a run that is training is drawn as it goes. Dashed lines are the plain models to beat. Tasks have "
    + "charts of their own.",
  view_train: "Train",
  lead_train: "Paste a text or a table, or choose a file: the task is recognised, the rest has defaults. A training goes on when "
    + "this page is closed; others wait their turn.",
  view_write: "Write",
  lead_write: "Type and see the next tokens; pick one to take that branch, or let the model go on.",
  view_predict: "Predict",
  lead_predict: "Give the model an input of its own task and see what it makes of it, and where it errs.",
  view_see: "See",
  lead_see: "What the units do while the network reads: one of them over the text, all of them over time, and places with a similar state.",
  view_gradients: "Gradients",
  lead_gradients: "What a loss teaches the weights, step by step back through time: cut it, truncate it, rescale W, and see what is left.",
  view_xray: "X-ray",
  lead_xray: "What a person would say of this run, with the measured reason and what to try; then every probe.",
  view_step: "Step",
  lead_step: "One step of a recurrent network with every number in view: forward, then back. Change any number, and all "
    + "that follows from it changes with it.",
  view_unfold: "Unfold",
  lead_unfold: "The network unrolled along time, with the shape of every part. U is the input matrix, W the state "
    + "matrix, V the output matrix, K the size of the vocabulary.",
  view_labs: "Labs",
  lead_labs: "The textbook's arguments as experiments: move a number, and it is measured again.",
});
