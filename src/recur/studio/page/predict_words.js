// The words of Predict.

import { words } from "./words.js";

words({
  reading_input: "computing …", input: "Input", prediction: "Prediction", another: "another example", draw_one: "generate a line", own_examples: "from the run's validation set",
  no_examples: "the run's files are not available: generated from its vocabulary", wanted: "Target: {target}", wanted_short: "target",
  unknown_inputs: "Not in the vocabulary, read as <unk>: {tokens}",
  takes_classes: "A text to classify.", takes_tags: "Words separated by spaces; each is tagged.", takes_pairs: "A source sequence.",
  takes_tree: "A tree in brackets; labels in it are ignored.", takes_series: "A table with a series to forecast.", takes_table: "A table with a header; one prediction per row.",
  takes_image: "Pixels; click a pixel to change it.", takes_numbers: "A sequence of numbers, one step per line.", takes_labels: "A label; a line is generated for it.", takes_line: "A line in the format of the task.",
  along: "Probability of “{output}” after each token", next_best: "Next best", was_cut: "stopped at the maximum length", no_attention: "This network has no attention: the source is encoded in one state.",
  attention: "Attention", attention_about: "Rows: output symbols. Columns: source symbols. Darker: larger attention weight.",
  empty_output: "empty", coloured_tree: "the tree, coloured by class", history: "history", came: "observed", naive: "seasonal naive: the value {season} steps before", naive_short: "seasonal naive", median: "median",
  band: "{low} … {high} %", forecast: "Forecast", judged: "Mean error: {own}; seasonal naive forecast: {naive}.", pixel: "row {r}, column {c}: {v}", sum_is: "the sum is {sum}", symbols_right: "{right} of 10 correct",
  confusion: "Confusion matrix", lead_confusion: "On the validation set. Rows: true class. Columns: predicted class. Click a number to see its examples.",
  cell_label: "{right} predicted as {said}: {count}", cell_right: "{right}, predicted correctly: {count}", cell_wrong: "{right} predicted as {said}: {count}", found_share: "recall",
});
