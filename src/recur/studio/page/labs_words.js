// The words of Labs.

import { words } from "./words.js";

words({
  experiment: "experiment", lab_busy: "running …",
  name_vanishing: "vanishing gradients", name_exploding: "exploding gradients", "name_forget-gate": "the forget gate", name_clipping: "clipping",
  name_variance: "variance", name_truncation: "truncation", name_parameters: "shared parameters",
  lab_vanishing: "Vanishing gradients: how the gradient decays with σ, with tanh, and along the memory of an LSTM.",
  lab_exploding: "Powers of W: eigenvalues inside, on and outside the unit circle.",
  "lab_forget-gate": "The forget gate is the decay of the gradient along the memory of an LSTM.",
  lab_clipping: "Gradient descent near a cliff of the loss, with and without clipping.",
  lab_variance: "One shared weight for all steps, compared with one weight per step of chosen variance.",
  lab_truncation: "What is learned of a dependency longer than the truncation window. Trains six networks; takes "
    + "half a minute.",
  lab_parameters: "Number of parameters of a table, an n-gram model and a network, by the number of tokens that they span.",
  set_T: "steps T", set_H: "units H", set_seed: "seed", set_theta: "threshold θ", set_steps: "steps n", set_target: "variance v*", set_lag: "lag", set_k: "tokens k", set_tau: "span τ", set_hidden: "units H",
});
