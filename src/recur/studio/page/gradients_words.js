// The words of Gradients.

import { words } from "./words.js";

words({
  terms: "∂L/∂W is a sum over the steps",
  lead_terms: "One term a step, G_t = δ_t h_{t−1}ᵀ; a bar is its norm. Click between two steps to detach the state there: "
    + "the terms before it lose what came through. The outline is the full gradient.",
  loss: "loss", loss_last: "of the last token", loss_all: "of every token", matrix: "matrix", scale: "scale",
  scale_linear: "linear", scale_log: "log", sum_label: "terms of the gradient, a step a column",
  cut_label: "step {k}, {token}: term {norm}; detach before it",
  step_about: "Step {k} reads {token} and predicts {target}, {back} before the end: ‖G‖ = {norm}, in full {full}",
  sum_full: "the largest term lies {largest} steps back ({share} % of all norms); the last {needed} steps give 90 % of the sum",
  sum_cut: "of {full} in full: {left} % of its length, cosine {cosine}",
  uncut: "remove all cuts", triangle: "Every loss by itself",
  lead_triangle: "A row is the loss of one prediction (its token at the right), a column a step: how large that step's term of that loss is.",
  triangle_cell: "loss of {target}, term of {token}: {norm}",
  flow: "How far gradients flow", crosses_time: "what crosses time", mode_full: "all", mode_truncated: "windows", mode_sliding: "sliding",
  mode_randomized: "at random", draw_again: "draw again",
  about_full: "Full backpropagation through time.",
  about_truncated: "Windows of τ steps, counted from the end: the state is carried from one to the next, and detached.",
  about_sliding: "Every loss reaches τ steps back, and no further.",
  about_randomized: "Each edge is kept with probability π and scaled by 1/π, else cut: unbiased, and noisy.",
  decay: "decay per step", memory: "steps until 1 % is left", beyond: "beyond the text", steps_back: "steps from the end",
  ghost: "{name}, in full", dotted_is_full: "dotted: the full gradient; axes stay",
  eigenvalues: "Eigenvalues, and the spectral radius",
  lead_eigenvalues: "Inside the unit circle a direction shrinks at every step, outside it grows. Scale W to another spectral radius "
    + "and see how ‖∂L/∂h_t‖ follows; the run is not changed.",
  radius: "radius of W", as_trained: "as trained", jacobian: "Jacobian of the last step", rescaled: "the gradient with W rescaled",
  dotted_is_trained: "dotted: as trained; axes stay",
  radius_about: "Spectral radius {radius} (trained: {own}): ‖∂L_T/∂{state}‖ is multiplied by {decay} a step.",
  clips: "Gradient clipping", "no clips": "No record of training.",
  clip_here: "The gradient of this loss has norm {norm}; with θ = {theta}, training would have scaled it by {factor}.",
  clip_none: "The gradient of this loss has norm {norm}; this run did not clip.",
  clip_share: "{share} % of the last steps were clipped",
});
