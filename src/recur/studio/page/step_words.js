// The words of Step.

import { words } from "./words.js";

words({
  step_cell: "cell", step_own: "custom", step_text: "text", step_units: "units", step_seed: "seed", step_weights: "weights",
  step_toy: "toy weights", step_run: "run {name}", step_undo: "Undo", step_redo: "Redo", step_reset: "Reset numbers", step_copy: "Copy link",
  step_copied: "Copied.", step_reads: "reads", step_says: "target",
  step_first: "Previous step", step_back: "Previous quantity", step_next: "Next quantity", step_last: "Next step",
  step_forward: "Forward", step_backward: "Backward", step_position: "Step {t} of {T}", step_all: "all gradients at once",
  step_keys: "Keys: ← → moves one quantity, Shift ← → one step, Home and End to the beginning and the end. "
    + "In a table, arrow keys move between numbers, Enter accepts a number, Escape restores it, and "
    + "an empty field releases it. Ctrl Z undoes.",
  step_loss: "loss of all steps", step_here: "loss of this step",
  step_numbers: "The numbers of step {t}", step_output: "Output layer", step_in_step: "The cell",
  step_of_weights: "Weights", step_shared: "The same at every step.",
  step_legend: "Below each weight: what this step adds to its gradient, and the sum from the last step back to here.",
  step_legend_rows: "Below each number: ∂L/∂ of it. ∂q stands for ∂L/∂q.",
  step_from_output: "from this step", step_from_next: "from step {t}", step_no_next: "the last step: no gradient from a later step",
  step_others: "the other {count} units", step_other_symbols: "the other {count} symbols",
  step_held: "held", step_edited: "changed", step_changes: "Changed by hand", step_let_go: "Undo this change",
  step_held_hint: "A number that you change where it is computed is held, and everything after it follows. In the "
    + "backward pass the gradient stops there, as with detach().",
  step_no_number: "This is not a number.", step_exact: "exactly", step_gradient: "gradient",
  step_checked: "Loss and every gradient agree with recur.reference, derived by hand, to {difference}.",
  step_unchecked_held: "Not compared with recur.reference: the reference cannot hold a number.",
  step_unchecked_own: "Custom cell: its gradients use the same rules as Elman, LSTM and GRU, which agree with recur.reference.",
  step_of_run: "The complete network of {name}: {H} units, {K} symbols; its logits agree with the run's to "
    + "{difference}. The embedding E is multiplied into U, so x is one-hot.",
  step_of_many: "{count} units are shown. All numbers come from the complete network; the part of the other "
    + "units is below.",
  step_shown: "units shown",
  step_equations: "Equations", step_example: "start from", step_equations_hint: "x is the input. A name with ' (or _t) that is read without it (or as _{t−1}) is a state. "
    + "Capital letters are matrices, small letters are vectors; both are initialised randomly. ⊙ or * "
    + "is the element-wise product.",
  step_mistake: "Syntax error:", step_take: "Export", step_take_hint: "The same equations as a custom cell file for recur:",
  step_download: "Save typed.py", step_worked: "worked out",
  step_state_before: "the state before this step", step_input: "one-hot: which symbol is read", step_start: "the state before the first step",
  step_elman_h: "the state", step_lstm_f: "forget gate", step_lstm_i: "input gate", step_lstm_g: "candidate, c̃", step_lstm_o: "output gate",
  step_lstm_c: "the memory", step_lstm_h: "the state, and the output", step_gru_r: "reset gate", step_gru_z: "update gate", "step_gru_h̃": "candidate",
  step_quiz: "predict first", step_guess: "? Work it out and type it:", step_right: "Right.", step_wrong: "Not quite. You said",
  step_rate: "learning rate η", step_untrain: "Undo all updates",
  step_update_hint: "One step of gradient descent: every weight changes by −η times its gradient. Numbers that you typed stay.",
  step_updated: "Updates: {n}. Loss of all steps: {before} before, {after} now.",
  step_picture: "Picture of the cell", step_picture_hint: "Squares next to a gate: its units at this step, red above 0, blue below 0, "
    + "darker for larger numbers. Click a gate to go to its row.",
  tour_start: "Tour", tour_next: "Next", tour_previous: "Back", tour_end: "End the tour",
  tour_text: "The text, one character per step. Each tile: the input below, the state h in the middle, the next character on top, "
    + "and how likely the network thinks it is.",
  tour_cell: "The state. Each unit is tanh of U x + W h + b. Point at a number to see how it was made.",
  tour_shared: "Step 2 uses the same U, W and V as step 1. Only x and the state before differ.",
  tour_output: "The output layer: logits, softmax, and the loss −log ŷ of the correct character.",
  tour_edit: "Every number can be changed. A number that you type here is held, and everything after it follows.",
  tour_back: "The backward pass starts at the loss of the last step and goes through the same rows in the opposite order.",
  tour_state: "The gradient of a state has two parts: from its own output, and from the next step through Wᵀ.",
  tour_sums: "At step 1 every weight has its whole gradient: the sum of the parts of all steps.",
  tour_update: "Now train: each click changes all weights by −η∇ and computes everything again. Watch the loss fall.",
  step_gru_h: "the state", step_at_end: "All gradients are complete: each sum is ∇ of its weight.",
});
