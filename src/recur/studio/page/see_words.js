// The words of See.

import { words } from "./words.js";

words({
  features: "Features that units follow", similar: "Similar states in this text", similar_training: "Similar states in the training text",
  "none similar": "No similar state.", "no training text": "What the run learned from is not on this machine.",
  searched: "Searched: the first {n} tokens of it.",
  drag_hint: "Drag over the text, or move with the arrow keys, extend with Shift, and press Enter.", colour: "colour by",
  units_time: "All units × time", lead_map: "A row a unit, a column a step; click a row to see it over the text.",
  map_label: "{units} units at {steps} steps, coloured by their value; arrow keys move", map_about: "unit {unit} after {token}: {value}", first_units: "the first {n} of {all} units",
});
