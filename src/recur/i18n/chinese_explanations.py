"""Chinese for what each probe measures."""

from __future__ import annotations

EXPLANATIONS = {
    "What can be looked at in this network.": "这个网络里有什么可看的。",
    "The loss says how badly the next step is predicted: lower is better. It should fall on what the network learns from and "
    "on text that it has not seen. Where only the first goes on falling, it learns by heart.": (
        "损失说明下一步预测得有多差，越低越好。它在训练数据和未见过的数据上都应当下降；如果只有前者继续下降，网络就是在死记硬背。"
    ),
    "The learning rate is the size of a training step. All weights were moved by a random step of that size: if the loss changes "
    "much, training cannot settle.": "学习率是训练每一步的步长。这里把全部权重随机移动这样一步：如果损失变化很大，训练就无法稳定下来。",
    "How well it knows its own training examples, beside new ones. A large gap is learning by heart; no gap, in a network that "
    "has stopped improving, means that it has no room for more.": (
        "它对训练样本和新样本各掌握得多好。差距大是死记硬背；没有差距而又不再进步，说明网络容量不够。"
    ),
    "The forget gate says how much of the memory survives a step: 1 keeps all of it, 0 nothing.": (
        "遗忘门决定一步之后保留多少记忆：1 全部保留，0 一点不留。"
    ),
    "A unit whose output is always the same tells the rest of the network nothing.": "输出始终不变的单元，对网络的其余部分什么也没说。",
    "In training, gradients go back over one window of steps. Here tokens are predicted from contexts longer than that: if the "
    "longer ones help, a longer window is worth its time.": (
        "训练时，梯度在一个窗口的步数之外被截断。这里用比窗口更长的上下文来预测词元：如果更长的有帮助，就值得加长窗口。"
    ),
    "How much a state k steps ago mattered for the last prediction, ‖∂L_T/∂s_t‖. Backpropagation through time multiplies a "
    "factor at every step: below 1 it vanishes, above 1 it explodes. What vanishes cannot be learned.": (
        "k 步之前的状态对最后一次预测有多重要：‖∂L_T/∂s_t‖。通过时间反向传播每走一步就乘一个因子：小于 1 就消失，大于 1 就爆炸。消失了的，就学不到。"
    ),
    "The same weights are used at every step, so their gradient is a sum over steps. These are its terms: which steps the weights "
    "learn from.": "每一步用的是同样的权重，所以它们的梯度是对各步求和。这里是其中各项：权重从哪些步学到东西。",
    "What becomes of a small change of the state after k steps. λ₁ is its growth a step, as a logarithm: below 0 it fades, above 0 "
    "it grows.": "状态的微小变化在 k 步之后变成什么样。λ₁ 是它每步增长的对数：小于 0 逐渐淡去，大于 0 越来越大。",
    "A gate at 0 or 1 has hardly any slope, so that no gradient passes through it. Some values there are usual; all of them are "
    "not.": "取值接近 0 或 1 的门几乎没有斜率，梯度通不过。部分取值如此很常见，全部如此就不正常了。",
    "The same tokens, predicted from their last 1, 2, 4 … tokens alone: how far back the network makes use of.": (
        "对同样的词元，只用它前面 1、2、4……个词元来预测：看网络利用多远的上下文。"
    ),
    "Which classes of the validation part are taken for which others, and whether it is as sure as it is right.": (
        "验证集中哪些类别被认作哪些类别，以及它的把握与正确率是否一致。"
    ),
    "For every symbol that it writes, where in the source it looked. It should look at few places at a time, and in the end at all "
    "of them.": "它写每个符号时看向源序列的哪里。每次应当只看少数几处，最后则每一处都看到。",
    "How much a leaf k levels below matters for the class of the root, and which nodes are right.": (
        "往下 k 层的叶对根的类别有多重要，以及哪些结点判断正确。"
    ),
    "What came minus what was forecast. If these errors follow a pattern, a better forecast would use it.": (
        "实际值减去预测值。如果这些误差有规律，更好的预测就能利用它。"
    ),
    "A band of 80 % should hold 80 % of what comes: no fewer values, and no more.": "80 % 的预测区间应当恰好包含 80 % 的实际值，不少也不多。",
    "Which of the numbers of a step the output depends on, by the size of its gradient.": "按梯度的大小，看输出依赖每一步的哪些数。",
    "Whether long inputs are more often wrong than short ones: a short memory shows there.": "长的输入是否比短的更容易出错：记忆短会在这里显现。",
    "Whether what it writes is its training text, word for word.": "它写的是不是逐字照抄训练文本。",
    "The same weights are used everywhere. If knowing the place in the text helps, the text changes along the way.": (
        "处处用的是同样的权重。如果知道在文本中的位置有帮助，说明文本前后在变化。"
    ),
    "Whether a state that was carried into a window from before it helps to predict.": "从窗口之前延续下来的状态是否有助于预测。",
    "W multiplies the state at every step. Eigenvalues inside the unit circle shrink it, those outside let it grow.": (
        "每一步都用 W 乘状态。单位圆内的特征值使它缩小，圆外的使它增大。"
    ),
    "Which way the gradient takes back through time: straight along the memory, or through gates and W.": (
        "梯度沿时间往回走哪条路：直接沿着记忆，还是穿过各个门和 W。"
    ),
    "How open the forget gate is at each token of one sentence: where it lets go of what it read.": (
        "读一句话时遗忘门在每个词元处开多大：它在哪里放下了读过的内容。"
    ),
    "The size of the state while it reads.": "阅读过程中隐状态的大小。",
    "Which earlier tokens one prediction depends on: the darker, the more.": "一次预测依赖前面的哪些词元：颜色越深，依赖越多。",
    "Units whose value follows something that one can name. The text is coloured by the best of them.": (
        "取值跟随某种可以说出名字的东西的单元。文本按其中最好的一个着色。"
    ),
}
