// The words of See.

import { words } from "./words.js";

words({
  features: "Features that units follow", similar: "Similar states in this text", similar_training: "Similar states in the training text",
  "none similar": "No similar state.", "no training text": "The run's training text is not available.",
  searched: "Searched in the first {n} tokens.",
  drag_hint: "Select a span: drag over the text, or move with the arrow keys, extend with Shift and press Enter.", colour: "colour by",
  units_time: "All units × time", lead_map: "One row per unit, one column per step. Click a row to see the unit over the text.",
  map_label: "{units} units at {steps} steps, coloured by their value; arrow keys move", map_about: "unit {unit} after {token}: {value}", first_units: "the first {n} of {all} units",
});
