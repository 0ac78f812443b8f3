// The words of Write.

import { words } from "./words.js";

words({
  bars_hint: "Light: probability. Dark: after temperature, top-k and top-p.",
  "next token": "Next token", "token before": "Token before", generate: "go on", completions: "Words that begin with “{letters}”",
  tokens_read: "{n} tokens read", unknown_read: "Read as <unk>: {tokens}.",
  unknown_seen: "<unk> stands for what is not in the vocabulary: {seen} of the {of} tokens in training were.",
  unknown_never: "<unk> stands for what is not in the vocabulary: training had no such token, so the model has learned nothing about it.",
  backward_hint: "This model reads from the end to the beginning: type at the beginning, where it writes on.",
  unknown_next: "It expects one next with {p} %.",
});
