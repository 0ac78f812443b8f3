// The words of Unfold: what each diagram shows.

import { words } from "./words.js";

words({
  unfold_sizes: "sizes", unfold_letters: "letters (no run)",
  about_unfolded: "A recurrent network applies the same cell at every step. Folded, it has a loop through W; unfolded, it is a "
    + "feed-forward network with shared weights U, W and V, and backpropagation works as in any such network.",
  "about_pattern-1": "Pattern I: every state reads the state before, and every step has an output and a loss. Command: recur train "
    + "tagged.conll --task tag --direction forward.",
  "about_pattern-2": "Pattern II: the next state reads the last output, not the last state. With teacher forcing all steps train in "
    + "parallel. Command: recur train tagged.conll --task tag --recurrence output.",
  "about_pattern-3": "Pattern III: the whole sequence is read, and the last state gives one output. Command: recur train names.tsv "
    + "--task classify --direction forward --pool last --no-blend.",
  about_conditioned: "A vector x conditions the sequence that is written: as an extra input R x at every step, as the first state, or both. "
    + "Command: recur train names.tsv --task conditional --condition input.",
  about_feedback: "A sequence x conditions a sequence y. The edges from one output to the next state let the outputs depend on each other.",
  about_bidirectional: "One state reads from the left, the other from the right, and the output reads both. U, W and biases of the two "
    + "directions are separate.",
  "about_encoder-decoder": "The encoder's last state is the context C. The decoder starts from it and writes a sequence of any length. "
    + "Command: recur train pairs.tsv --task seq2seq.",
  about_deep: "Depth can be added as layers of states (--num-layers), between input, state and output (--depth-input, --depth-transition, "
    + "--depth-output), and a skip connection shortens the path through a deep transition.",
  about_tree: "A recursive network applies one cell to the children of every node. A balanced tree has depth log τ where a chain has τ. "
    + "Command: recur train trees.txt --task tree.",
  about_grid: "In two dimensions a state reads its left and its upper neighbour. Four corners see the whole image, as two directions see "
    + "the whole sequence. Command: recur train digits.npz --task grid.",
  about_lstm: "The memory c passes from step to step through one product and one sum, so its gradient is multiplied by f alone. "
    + "The gates read x and the last state.",
  about_gru: "The update gate z mixes the last state with the candidate; the reset gate r decides how much of the last state the "
    + "candidate reads.",
});
