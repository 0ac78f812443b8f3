// The page's words. English is in the source: a view brings its own (NAME_words.js); those here are the frame's, and words
// of several views. A sentence is looked up by its name; without an entry of its own in English it is that name. Chinese is
// in chinese.js, which is generated from the catalogue of recur.

import { messages, metrics as chineseMetrics } from "./chinese.js";

export const languages = { en: "English", zh: "中文" };

const catalogue = { en: {}, zh: messages };

// English words of a view: { name: sentence }. One name has one meaning in the whole page.
export function words(added) {
  for (const [name, sentence] of Object.entries(added)) {
    if ((catalogue.en[name] ?? sentence) !== sentence) throw new Error(`two meanings of ${name}`);
    catalogue.en[name] = sentence;
  }
}

words({
  skip: "Skip to content", group_training: "training", group_model: "one run", group_learning: "learning",
  other_task: "{name} is a run of the task {task}, which this view does not read. ",
  no_run_fits: "There is no run here yet that this view reads. Try:",
  empty: "There is no run here yet. Try:", error: "cannot be read",
});

// The parts of a metric's name, as in valid_sequence_error_rate.
const englishMetrics = {
  valid: "validation", train: "training", mse: "MSE", mase: "MASE", smape: "sMAPE", macro_f1: "macro F1",
  gap: "free-running gap", free_loss: "free-running loss", pinball: "pinball loss", grad_norm: "gradient norm",
  clipped: "share clipped", lr: "learning rate", predictions_per_second: "predictions per second",
};

let current = localStorage.getItem("language") || (navigator.language.startsWith("zh") ? "zh" : "en");

export const language = () => current;

export function setLanguage(code) {
  current = code;
  localStorage.setItem("language", code);
  document.documentElement.lang = code;
}

export const t = (name, values = {}) => Object.entries(values).reduce(
  (text, [key, value]) => text.replaceAll(`{${key}}`, value), catalogue[current][name] ?? name);

// A metric by its name in metrics.jsonl: valid_error is "validation error".
export function metricLabel(name) {
  const [, part, rest] = /^(?:(valid|train)_)?(.+)$/.exec(name);
  const known = current === "zh" ? chineseMetrics : englishMetrics;
  const label = known[rest] ?? rest.replaceAll("_", " ");
  const space = current === "zh" && !/^[a-z]/i.test(label) ? "" : " ";
  return part ? known[part] + space + label : label;
}
