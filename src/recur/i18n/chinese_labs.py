"""Chinese for the labs' figures and paragraphs, by what they look like."""

from __future__ import annotations

LAB_LABELS = {
    "how gradients vanish": "梯度怎样消失",
    "share of the gradient left": "剩下的梯度所占比例",
    "share of the gradient left along c": "沿 c 剩下的梯度所占比例",
    "the forget gate decides what is left": "遗忘门决定剩下多少",
    "steps back": "往回的步数",
    "1 % is left": "剩 1 %",
    "step t": "步 t",
    "forward: the state": "向前：状态",
    "back: the gradient": "往回：梯度",
    "chance, log 2": "瞎猜，log 2",
    "step of training": "训练步",
    "loss": "损失",
    "what is learned": "学到了什么",
    "‖g‖ before clipping": "裁剪前的 ‖g‖",
    "the gradient's norm": "梯度的范数",
    "no clipping": "不裁剪",
    "Elman, σ": "Elman，σ",
    "Elman, tanh": "Elman，tanh",
    "LSTM, along c": "LSTM，沿 c",
    "table, k^τ": "表，k^τ",
    "n-grams of the text": "文本的 n 元语法",
    "tokens spanned, τ": "所跨词元数 τ",
    "numbers": "数的个数",
    "how many numbers a model has": "一个模型有多少个数",
    "share of right answers": "答对的比例",
    "bias": "偏差",
    "spread": "离散程度",
    "error, over the full gradient's norm": "误差，相对于完整梯度的范数",
    "how far a gradient is off": "梯度偏离多远",
    "variance of the product": "乘积的方差",
    "single weights": "单个权重",
    "steps": "步数",
    "matrices": "矩阵",
    "‖h‖², median, 8 in 10": "‖h‖²，中位数与八成范围",
}

LAB_PARAGRAPHS = {
    "The gradient of one step's loss, followed back through {T} steps of random input. With σ, whose slope is at most "
    "1/4, it is multiplied by {s} a step and 1 % is left after {s1}; with tanh, slope at most 1, by {t}, and after {t1}. "
    "Along the memory of an LSTM with forget bias 4 it is multiplied by the forget gate alone, {c} a step: {kept} is left "
    "after {n}.": (
        "一步损失的梯度，沿随机输入往回 {T} 步。σ 的斜率至多 1/4，梯度每步乘以 {s}，{s1} 步后剩 1 %；tanh 的斜率至多 1，每步乘以 {t}，"
        "{t1} 步后剩 1 %。沿遗忘偏置为 4 的 LSTM 的记忆，梯度只乘以遗忘门，每步 {c}：{n} 步后还剩 {kept}。"
    ),
    "h_t = W h_{open} with every eigenvalue of W at 0.9, 1 or 1.1 in absolute value. After {T} steps the state's norm is "
    "{low}, {one} and {high}: {powers}. On the way back the gradient meets Wᵀ at every step, and after {T2} steps it is "
    "{small}, {same} and {large} of what it was: what grows forward explodes backward. tanh bounds the state ({held}), and "
    "where units saturate its slope is below 1: the same W then multiplies the gradient by {saturated} in place of {large2}.": (
        "h_t = W h_{open}，W 的特征值绝对值全为 0.9、1 或 1.1。{T} 步后状态的范数为 {low}、{one} 和 {high}：{powers}。往回时梯度每步"
        "遇到 Wᵀ，{T2} 步后为原来的 {small}、{same} 和 {large}：向前增长的，往回就爆炸。tanh 约束了状态（{held}），单元饱和处它的斜率小于 1："
        "同一个 W 于是只把梯度乘以 {saturated}，而不是 {large2}。"
    ),
    "∂c_t/∂c_{open} = f_t along the memory, so the forget gate is the gradient's decay. A step multiplies it, with a bias of b, "
    "by what was measured over {T} steps: {listed}. With f near 0 the past is cut off on purpose; with f near 1 it is kept as in the LSTM of 1997, which had no forget "
    "gate. This is why its bias is often initialised to 1 or more.": (
        "沿记忆 ∂c_t/∂c_{open} = f_t，所以遗忘门就是梯度的衰减。偏置为 b 时每步乘以多少，在 {T} 步上测得：{listed}。f 接近 0 时有意切断过去；f 接近 1 时保留过去，"
        "就像 1997 年没有遗忘门的 LSTM。这就是为什么它的偏置常初始化为 1 或更大。"
    ),
    "Plain gradient descent on an Elman network whose W has radius 1.6, which is to name the first of {T} symbols; guessing "
    "has a loss of {guess}. Without clipping the gradient's norm reaches {norm}, one step over the cliff undoes what was "
    "learned, and the last ten losses are {last} on average. With g ← min(1, θ/‖g‖) g and {bounded}, {share} of the steps "
    "are shortened, none turned, and the loss falls to {loss}.": (
        "对一个 W 的谱半径为 1.6 的 Elman 网络做普通梯度下降，它要说出 {T} 个符号中的第一个；瞎猜的损失为 {guess}。不裁剪时梯度范数达到 {norm}，"
        "越过悬崖的一步毁掉已学的东西，最后十个损失平均为 {last}。用 g ← min(1, θ/‖g‖) g 且 {bounded} 时，{share} 的步被缩短，方向不变，"
        "损失降到 {loss}。"
    ),
    "A table over sequences of τ out of k = {k} tokens has k^τ numbers: {first} for one token, {last} for {longest}. {network} "
    "has {size} parameters, however long the sequence: it reads every step with the same weights. {rest}": (
        "由 k = {k} 个词元组成、长 τ 的序列的表有 k^τ 个数：一个词元 {first} 个，{longest} 个词元 {last} 个。{network} 有 {size} 个参数，"
        "无论序列多长：它用同样的权重读每一步。{rest}"
    ),
    "From τ = {beyond} on the network is smaller than the table.": "从 τ = {beyond} 起，网络比表小。",
    "A language model of {hidden} {cell} units": "一个有 {hidden} 个 {cell} 单元的语言模型",
    "Single weights first. One w for all steps: with v = ⁿ√v* the variance of wⁿ should be v* = {target}, and after {short} "
    "steps it is {shared} (theory {shared_theory}): the more steps, the further off. A weight of its own for each step: {own} "
    "(theory {theory}). As networks of {H} units with entries of variance {v} and v = {root}: after {steps} steps the mean of ‖h‖² is "
    "{measured} with a matrix for each step (theory {power}), and of {networks} networks eight in ten lie between {a} and "
    "{b}. With one matrix for all steps eight in ten lie between {c} and {d}: each draw of W has its own largest eigenvalue, "
    "and its power vanishes or explodes. The gradient meets the same factors in the other order and fares alike. Weights for each "
    "step, their variance chosen for the length, are a remedy for deep networks of a fixed depth; a recurrent network shares W, "
    "so what is left to it is W near orthogonal (--init orthogonal), gates, and clipping.": (
        "先看单个权重。所有步共用一个 w：取 v = ⁿ√v*，wⁿ 的方差应为 v* = {target}，而 {short} 步后是 {shared}（理论值 {shared_theory}）："
        "步数越多偏得越远。每步各有一个权重：{own}（理论值 {theory}）。换成 {H} 个单元的网络，元素方差为 {v}，v = {root}：每步一个矩阵时，{steps} 步后 ‖h‖² 的均值为 "
        "{measured}（理论值 {power}），{networks} 个网络中八成在 {a} 与 {b} 之间。所有步共用一个矩阵时，八成在 {c} 与 {d} 之间：每次抽到的 W "
        "有自己的最大特征值，它的幂消失或爆炸。梯度以相反的次序遇到同样的因子，命运相同。每步各有权重、方差按长度选定，是固定深度的深层网络的办法；"
        "循环网络共用 W，它只能让 W 接近正交（--init orthogonal）、用门、用裁剪。"
    ),
    "The first of {n} symbols has to be named at the end; chance is 50 %. After {steps} steps an LSTM is right {t3} with "
    "truncated:3, {t5} with truncated:5 and {s5} with sliding:5: no gradient reaches back over {lag} steps, so nothing teaches "
    "it to keep the symbol. With truncated:20, wider than the lag, it is right {t20}, with full backpropagation {full}, cut at "
    "random (randomized:0.9) {r9}. The gradients of one network with a loss at each of {T} steps, beside the full one: "
    "truncated:5 reaches back {cut_reach} steps on average and is off by {cut_bias}, always the same way; sliding:5 reaches back "
    "{slid_reach} and is off by {slid_bias}, for {rows} rows in the place of one and {slid_time} times the processor's time of "
    "full backpropagation (truncated: {cut_time}); randomized:0.8 is off by {drawn_bias} in the mean of {draws} draws, of which "
    "{noise} is what so many draws leave by chance, and a single draw by {spread}: unbiased, and noisy.": (
        "最后要说出 {n} 个符号中的第一个；瞎猜对一半。训练 {steps} 步后，LSTM 用 truncated:3 答对 {t3}，用 truncated:5 答对 {t5}，用 sliding:5 "
        "答对 {s5}：没有梯度能往回越过 {lag} 步，所以没有什么教它记住那个符号。窗口比间隔宽的 truncated:20 答对 {t20}，完整的反向传播 {full}，"
        "随机切断（randomized:0.9）{r9}。再看同一个网络的梯度，{T} 步每步都有损失，与完整的梯度相比：truncated:5 平均往回 {cut_reach} 步，"
        "偏差 {cut_bias}，总偏向同一边；sliding:5 往回 {slid_reach} 步，偏差 {slid_bias}，代价是一行变成 {rows} 行，处理器时间为完整反向传播的 "
        "{slid_time} 倍（truncated 为 {cut_time} 倍）；randomized:0.8 对 {draws} 次抽取取平均后偏差 {drawn_bias}，其中 {noise} "
        "是抽取次数有限而偶然留下的，单独一次则偏 {spread}：无偏，但噪声大。"
    ),
}
