// The words of Labs.

import { words } from "./words.js";

words({
  experiment: "experiment", lab_busy: "measuring…",
  name_vanishing: "vanishing gradients", name_exploding: "exploding gradients", "name_forget-gate": "the forget gate", name_clipping: "clipping",
  name_variance: "variance", name_truncation: "truncation", name_parameters: "shared parameters",
  lab_vanishing: "A product of small slopes: how the gradient falls with σ, with tanh, and along the memory of an LSTM.",
  lab_exploding: "The powers of W: eigenvalues inside the unit circle, on it and outside.",
  "lab_forget-gate": "The forget gate is the gradient's decay along the memory of an LSTM: from shut to open.",
  lab_clipping: "Gradient descent beside a cliff, with and without clipping.",
  lab_variance: "One weight for all steps, beside a weight for each with its variance chosen for their number.",
  lab_truncation: "What is learned of a dependency that is longer than the window of backpropagation. It trains six networks: give it half a minute.",
  lab_parameters: "How many numbers a table and a network have, by the tokens that they span.",
  set_T: "steps T", set_H: "units H", set_seed: "seed", set_theta: "bound θ", set_steps: "steps n", set_target: "variance v*", set_lag: "lag", set_k: "tokens k", set_tau: "span τ", set_hidden: "units H",
});
