// The words of Runs.

import { words } from "./words.js";

words({
  "no samples": "None of these runs kept samples.", samples: "Samples over time",
  runs_time: "time", runs_loss: "training loss", runs_changed: "changed", runs_filter: "filter by name, notes, options",
  runs_all: "draw these", runs_none: "draw none", runs_open: "not finished", runs_more: "{n} more",
  runs_pending: "{n} runs are being read …", runs_no_fit: "No run fits.", runs_axis: "over", runs_smoothing: "smoothing",
  runs_differences: "What they differ in", runs_two: "Choose two runs of one task, or more.", runs_same: "The options of {names} are the same.",
  runs_notes: "Notes", runs_notes_of: "Notes on {name}", runs_notes_hint: "what you want to remember of it", runs_saved: "kept",
  runs_empty: "There is no run here yet. Train one from this page, or type:",
});
