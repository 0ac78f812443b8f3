// The words of Runs.

import { words } from "./words.js";

words({
  "no samples": "None of these runs has saved samples.", samples: "Samples over time",
  runs_time: "time", runs_loss: "training loss", runs_changed: "changed", runs_filter: "filter by name, notes, options",
  runs_all: "select all", runs_none: "select none", runs_open: "not finished", runs_more: "{n} more",
  runs_pending: "Reading {n} more runs …", runs_no_fit: "No run matches.", runs_axis: "x-axis", runs_smoothing: "smoothing",
  runs_differences: "Options that differ", runs_two: "Select two or more runs of one task.", runs_same: "The options of {names} are the same.",
  runs_notes: "Notes", runs_notes_of: "Notes on {name}", runs_notes_hint: "your notes on this run", runs_saved: "saved",
  runs_empty: "There are no runs yet. Train one on this page, or run:",
});
