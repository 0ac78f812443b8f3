// The words of what a prediction hangs on.

import { words } from "./words.js";

words({
  hangs_about_before: "Most likely previous token: {token} ({p} %). Warm tokens raise its log-probability, cold "
    + "tokens lower it (gradient × input).",
  hangs_on: "Saliency of this prediction", hangs_before: "all earlier tokens:",
  hangs_about: "Most likely next token: {token} ({p} %). Warm tokens raise its log-probability, cold tokens "
    + "lower it (gradient × input).",
});
