// The words of Gradients.

import { words } from "./words.js";

words({
  terms: "∂L/∂W is a sum over the steps",
  lead_terms: "One term per step, G_t = δ_t h_{t−1}ᵀ; the bar is its norm. Click between two steps to detach "
    + "the state there: terms before it lose the gradient that passed. The outline is the full gradient.",
  loss: "loss", loss_last: "of the last token", loss_all: "of every token", matrix: "matrix", scale: "scale",
  scale_linear: "linear", scale_log: "log", sum_label: "terms of the gradient, one column per step",
  cut_label: "step {k}, {token}: term {norm}; detach before it",
  step_about: "Step {k} reads {token} and predicts {target}, {back} steps before the end: ‖G‖ = {norm}, full "
    + "gradient {full}",
  sum_full: "the largest term is {largest} steps back ({share} % of all norms); the last {needed} steps "
    + "give 90 % of the sum",
  sum_cut: "full gradient {full}: {left} % of its norm remains, cosine {cosine}",
  uncut: "remove all detach points", triangle: "Each loss separately",
  lead_triangle: "Rows: the loss of one prediction (its target at the right). Columns: steps. Darker: a larger "
    + "term of that loss.",
  triangle_cell: "loss of {target}, term of {token}: {norm}",
  flow: "How far gradients flow", crosses_time: "truncation", mode_full: "none", mode_truncated: "windows", mode_sliding: "sliding",
  mode_randomized: "randomized", draw_again: "new random draw",
  about_full: "Full backpropagation through time.",
  about_truncated: "Windows of τ steps, counted from the end. The state passes from window to window, but is detached.",
  about_sliding: "Every loss is backpropagated over τ steps.",
  about_randomized: "Each edge is kept with probability π and scaled by 1/π, else cut: unbiased, with higher variance.",
  decay: "decay per step", memory: "steps until 1 % is left", beyond: "beyond the text", steps_back: "steps from the end",
  ghost: "{name}, full gradient", dotted_is_full: "dotted: full gradient",
  eigenvalues: "Eigenvalues, and the spectral radius",
  lead_eigenvalues: "Inside the unit circle a direction shrinks at every step, outside it grows. Rescale W to "
    + "another spectral radius and see how ‖∂L/∂h_t‖ changes. The run is not changed.",
  radius: "radius of W", as_trained: "as trained", jacobian: "Jacobian of the last step", rescaled: "the gradient with W rescaled",
  dotted_is_trained: "dotted: as trained",
  radius_about: "Spectral radius {radius} (trained: {own}): ‖∂L_T/∂{state}‖ is multiplied by {decay} per step.",
  clips: "Gradient clipping", "no clips": "This run has no training metrics.",
  clip_here: "The gradient of this loss has norm {norm}. With θ = {theta}, training scales it by {factor}.",
  clip_none: "The gradient of this loss has norm {norm}. This run does not clip gradients.",
  clip_share: "{share} % of the last steps were clipped",
});
