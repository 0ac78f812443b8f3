// The words of Predict.

import { words } from "./words.js";

words({
  reading_input: "reading it …", input: "Input", prediction: "Prediction", another: "another example", draw_one: "draw a line", own_examples: "from the run's own validation part",
  no_examples: "the run's files are not here: made of its vocabulary", wanted: "It should say: {target}", wanted_short: "should be",
  unknown_inputs: "Not in the vocabulary, read as <unk>: {tokens}",
  takes_classes: "A text to classify.", takes_tags: "Words between spaces, each to be tagged.", takes_pairs: "A source to write from.",
  takes_tree: "A tree in brackets; its own labels are not looked at.", takes_series: "A series as a table: what comes next?", takes_table: "A table with a header: one prediction a row.",
  takes_image: "Pixels: click one to paint it.", takes_numbers: "A sequence of numbers, a step a line.", takes_labels: "A label to write a line of.", takes_line: "A line as the task has it.",
  along: "How sure it is of “{output}” after each token", next_best: "Next best", was_cut: "did not end by itself", no_attention: "This network has no attention: all it knows of the source is one state.",
  attention: "Attention", attention_about: "A row is a symbol written, a column a symbol of the source: the darker, the more it looked there.",
  empty_output: "nothing", coloured_tree: "the tree, a colour a class", history: "so far", came: "what came", naive: "naive: as {season} steps before", naive_short: "naive", median: "median",
  band: "{low} … {high} %", forecast: "Forecast", judged: "Mean error here: {own}; the naive forecast's {naive}.", pixel: "row {r}, column {c}: {v}", sum_is: "the sum is {sum}", symbols_right: "{right} of 10 right",
  confusion: "Confusion table", lead_confusion: "Of the validation part. A row is the right class, a column what the model says; click a number for its examples.",
  cell_label: "{right} said to be {said}: {count}", cell_right: "{right}, and said so: {count}", cell_wrong: "{right} taken for {said}: {count}", found_share: "found",
});
