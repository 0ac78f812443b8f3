// The words of what a prediction hangs on.

import { words } from "./words.js";

words({
  hangs_about_before: "The likeliest token before, {token} ({p} %), hangs on these: warm adds to its log-probability, cold takes "
    + "away (gradient × input).",
  hangs_on: "What this prediction hangs on", hangs_before: "everything earlier:",
  hangs_about: "The likeliest next token, {token} ({p} %), hangs on these: warm adds to its log-probability, cold takes "
    + "away (gradient × input).",
});
