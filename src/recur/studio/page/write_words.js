// The words of Write.

import { words } from "./words.js";

words({
  bars_hint: "Light: probability. Dark: probability after temperature, top-k and top-p.",
  "next token": "Next token", "token before": "Token before", generate: "generate", completions: "Words that start with “{letters}”",
  tokens_read: "{n} tokens read", unknown_read: "Read as <unk>: {tokens}.",
  unknown_seen: "<unk> replaces tokens that are not in the vocabulary: {seen} of {of} training tokens.",
  unknown_never: "<unk> replaces tokens that are not in the vocabulary. The training set has none, so the model "
    + "has learned nothing about <unk>.",
  backward_hint: "This model reads from the end to the beginning: type at the beginning, where it continues the text.",
  unknown_next: "The probability that the next token is <unk> is {p} %.",
});
