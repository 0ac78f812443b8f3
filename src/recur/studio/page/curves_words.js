// The words of curves.

import { words } from "./words.js";

words({
  curves_hint: "Arrow keys move the crosshair.", curves_none: "no metrics yet",
  axis_tokens: "tokens", axis_time: "training time",
});
