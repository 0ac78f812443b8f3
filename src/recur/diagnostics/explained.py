"""What each probe measures, for a reader who meets it for the first time."""

from __future__ import annotations

from recur.i18n import said

EXPLAINED = {
    "network": said("What can be looked at in this network."),
    "training": said(
        "The loss says how badly the next step is predicted: lower is better. It should fall on what the "
        "network learns "
        "from and on text that it has not seen. Where only the first goes on falling, it learns by heart."
    ),
    "rate": said(
        "The learning rate is the size of a training step. All weights were moved by a random step of that "
        "size: if the "
        "loss changes much, training cannot settle."
    ),
    "fit": said(
        "How well it knows its own training examples, beside new ones. A large gap is learning by heart; no gap, in a "
        "network that has stopped improving, means that it has no room for more."
    ),
    "forgetting": said("The forget gate says how much of the memory survives a step: 1 keeps all of it, 0 nothing."),
    "dead units": said("A unit whose output is always the same tells the rest of the network nothing."),
    "window": said(
        "In training, gradients go back over one window of steps. Here tokens are predicted from contexts longer than "
        "that: if the longer ones help, a longer window is worth its time."
    ),
    "gradient flow": said(
        "How much a state k steps ago mattered for the last prediction, ‖∂L_T/∂s_t‖. Backpropagation through time "
        "multiplies a factor at every step: below 1 it vanishes, above 1 it explodes. What vanishes cannot be learned."
    ),
    "gradient terms": said(
        "The same weights are used at every step, so their gradient is a sum over steps. These are its terms: which "
        "steps the weights learn from."
    ),
    "Jacobians": said(
        "What becomes of a small change of the state after k steps. λ₁ is its growth a step, as a logarithm: "
        "below 0 it "
        "fades, above 0 it grows."
    ),
    "saturation": said(
        "A gate at 0 or 1 has hardly any slope, so that no gradient passes through it. Some values there are "
        "usual; all of "
        "them are not."
    ),
    "context": said(
        "The same tokens, predicted from their last 1, 2, 4 … tokens alone: how far back the network makes use of."
    ),
    "classes": said(
        "Which classes of the validation part are taken for which others, and whether it is as sure as it is right."
    ),
    "attention": said(
        "For every symbol that it writes, where in the source it looked. It should look at few places at a "
        "time, and in "
        "the end at all of them."
    ),
    "tree depth": said("How much a leaf k levels below matters for the class of the root, and which nodes are right."),
    "residuals": said(
        "What came minus what was forecast. If these errors follow a pattern, a better forecast would use it."
    ),
    "bands": said("A band of 80 % should hold 80 % of what comes: no fewer values, and no more."),
    "inputs": said("Which of the numbers of a step the output depends on, by the size of its gradient."),
    "length": said("Whether long inputs are more often wrong than short ones: a short memory shows there."),
    "copying": said("Whether what it writes is its training text, word for word."),
    "stationarity": said(
        "The same weights are used everywhere. If knowing the place in the text helps, the text changes along the way."
    ),
    "position": said("Whether a state that was carried into a window from before it helps to predict."),
    "spectrum": said(
        "W multiplies the state at every step. Eigenvalues inside the unit circle shrink it, those outside let it grow."
    ),
    "memory path": said(
        "Which way the gradient takes back through time: straight along the memory, or through gates and W."
    ),
    "sentence": said("How open the forget gate is at each token of one sentence: where it lets go of what it read."),
    "states": said("The size of the state while it reads."),
    "saliency": said("Which earlier tokens one prediction depends on: the darker, the more."),
    "units": said("Units whose value follows something that one can name. The text is coloured by the best of them."),
}
"""By the probe's name."""
