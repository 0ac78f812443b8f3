"""Chinese for what X-ray concludes and advises."""

from __future__ import annotations

SENTENCES = {
    # how it stands, and how training went
    "level with {name} in {metric}: {own} vs. {other}": "{metric}与 {name} 相当：{own} 对 {other}",
    "behind {name} in {metric}: {own} vs. {other}": "{metric}不如 {name}：{own} 对 {other}",
    "ahead of {name} in {metric}: {own} vs. {other}": "{metric}优于 {name}：{own} 对 {other}",
    "ahead of {name}, the best of {count} baselines, in {metric}: {own} vs. {other}": (
        "{metric}优于 {count} 个基线中最好的 {name}：{own} 对 {other}"
    ),
    "{metric} {value}; no plain model was measured": "{metric} {value}；没有测量可对照的简单模型",
    "nothing was measured on a validation part": "没有在验证集上测量过",
    "nothing was measured": "没有测量",
    "overfitting: best after {step:,} of {steps:,} steps ({best}), {last} at the end": (
        "过拟合：第 {step:,} 步时最好（共 {steps:,} 步），为 {best}，结束时为 {last}"
    ),
    "{metric} was still improving when training ended": "训练结束时{metric}仍在改善",
    "the network alone was still improving when training ended: accuracy {half:.0%} in the first half of the run, {last:.0%} "
    "at the end": "训练结束时网络本身仍在改善：前一半准确率最高 {half:.0%}，结束时 {last:.0%}",
    "training diverged at step {step:,}: {what}": "训练在第 {step:,} 步发散：{what}",
    "training diverges: validation loss rose from {best:.3f} to {last:.3f}, training loss is {train:.3f}": (
        "训练发散：验证损失从 {best:.3f} 升到 {last:.3f}，训练损失为 {train:.3f}"
    ),
    "it diverged: its loss of {best:.2f} nats is worse than guessing among all tokens, {guess:.2f}": (
        "训练发散：损失为 {best:.2f} 奈特，比在全部词元中瞎猜（{guess:.2f}）还差"
    ),
    "overfitting: training loss {train:.3f}, validation loss {valid:.3f}": (
        "过拟合：训练损失 {train:.3f}，验证损失 {valid:.3f}"
    ),
    "too few evaluations to tell whether training was long enough": "评估次数太少，无法判断训练是否足够久",
    "the model has reached the limit of its size": "模型已达到其规模的上限",
    "it has learned what it can at this size: the second half of the run took {gain:.0%} off, and {fit}": (
        "以它的大小，能学的已经学到了：训练的后一半只降低了 {gain:.0%}，而且{fit}"
    ),
    "{remark}: the second half of the run took {gain:.0%} off": "{remark}：训练的后一半又降低了 {gain:.0%}",
    "the model has barely started to learn: {name} is about as good": "模型几乎还没开始学习：{name}差不多一样好",
    "it has hardly begun to learn: none of its answers is right": "几乎还没开始学：没有一个回答是对的",
    "the network has hardly begun to learn: alone it is right in {own:.0%}, the commonest class in {other:.0%}": (
        "网络几乎还没开始学：单独使用时它的正确率为 {own:.0%}，总答最常见的类别也有 {other:.0%}"
    ),
    "a plain model is better, and nothing that was measured says why": "有更好的简单模型，而测得的结果都不能说明原因",
    "it has hardly begun to learn: its loss is {loss:.2f}, that of guessing {guess:.2f}": (
        "几乎还没开始学：损失为 {loss:.2f}，瞎猜的损失为 {guess:.2f}"
    ),
    "{remark} ({detail})": "{remark}（{detail}）",
    "{metric} {first} → {last}": "{metric} {first} → {last}",
    "{went}; gradient norm {norm:.2g}, {clipped:.0%} of the steps clipped": (
        "{went}；梯度范数 {norm:.2g}，{clipped:.0%} 的步做了梯度裁剪"
    ),
    "training was stable and had come to its end: {detail}": "训练稳定，且已收敛：{detail}",
    "not known: {count} measurements are too few to say how training went; {enough} are needed": (
        "无法判断：只有 {count} 次测量，说不出训练进行得怎样；至少要 {enough} 次"
    ),
    "no fault was found, and nothing suggests that it would do much better": "没有发现毛病，也没有迹象表明它还能好很多",
    "no fault was found; {remark}, so that more time would help a little": "没有发现毛病；{remark}，再多训练一些还会略有好处",
    "no fault was found, but no plain model was measured that it could be compared with (--baseline)": (
        "没有发现毛病，但没有测量可对照的简单模型（--baseline）"
    ),
    # remarks of tasks
    "{share} of the outputs were truncated before the end symbol": "{share} 的输出在结束符之前被截断",
    "worse than {name}, which the network can be trained to correct": "不如{name}；可以让网络在它的基础上修正",
    "the network does not improve on {name} of each series and is not used": "网络没有改进各序列的{name}，因此不使用网络",
    "prediction intervals of {nominal:.0%} cover {covered:.0%} of the values: the series has changed": (
        "{nominal:.0%} 的预测区间实际覆盖 {covered:.0%}：序列已发生变化"
    ),
    "{share} of the words have tags that are not in the training set; each counts as an error": (
        "{share} 的词带有训练集中没有的标签，每个都算错误"
    ),
    "most outputs are empty: CTC still predicts blanks only": "多数输出为空：CTC 仍只预测空白符",
    # advice
    "try {option}: {means}": "试试 {option}：{means}",
    "it helped if {see}": "有效的标志：{see}",
    "smaller steps": "步子更小",
    "smaller steps, and none longer than the clip allows": "步子更小，并用梯度裁剪限制每一步",
    "the loss falls from the first measurement on and does not rise again": "损失从第一次测量起就下降，不再回升",
    "twice the time, from the start: the rate falls over all of it": "从头训练两倍的时间：学习率在全程中下降",
    "the loss ends lower, and its second half is flatter": "损失最终更低，后一半更平",
    "dropout: a share of the outputs is left away at random in training": "丢弃法（dropout）：训练时随机去掉一部分输出",
    "less time": "训练时间更短",
    "the loss on what it has not seen ends at its best": "未见数据上的损失在结束时正好最低",
    "more units": "更多的单元",
    "the loss falls on what it learned from and on what it has not seen": "训练数据和未见数据上的损失都下降",
    "a forget gate that starts open, at σ(1) = 0.73": "让遗忘门一开始就是开的：σ(1) = 0.73",
    "under “forgetting”, the gate's mean lies well above 0.1": "“遗忘门”一节中，门的平均值明显高于 0.1",
    "units with gates, which do not die": "带门的单元，不会死",
    "under “dead units”, hardly any is left": "“死单元”一节中几乎不再有死单元",
    "gradients that reach further back": "让梯度往回走得更远",
    "the loss falls, and under “context” more tokens are used": "损失下降，而且“上下文”一节中用到的词元更多",
    "a cell whose gates can carry its state on unchanged": "带门的单元，能把状态原样传下去",
    "under “gradient flow”, 1 % is left after more steps than before": "“梯度流”一节中，经过比以前更多的步才只剩 1 %",
    "training {folder} with {option}": "正在用 {option} 训练 {folder}",
    "{metric} {before} before, {after} with {option}: {helped}": "{metric}：原来 {before}，用 {option} 后 {after}：{helped}",
    # rate and fit
    "a random step of the size that --rate {rate:g} makes changes the loss from {before:.3f} to {after:.3f}": (
        "以 --rate {rate:g} 的步长随机走一步，损失从 {before:.3f} 变为 {after:.3f}"
    ),
    "steps are small enough: {detail}": "步子足够小：{detail}",
    "the learning rate is too high: {detail}": "学习率过高：{detail}",
    "its loss is {learned:.3f} on what it learned from": "训练数据上的损失为 {learned:.3f}",
    "its loss is {learned:.3f} on what it learned from, dropout off, and {other:.3f} on what it has not seen": (
        "训练数据上的损失为 {learned:.3f}（不用丢弃法），未见数据上为 {other:.3f}"
    ),
    # gates and units
    "the cell has no forget gate": "这种单元没有遗忘门",
    "gate {gate} has no activation function": "门 {gate} 没有激活函数",
    "forget gate {gate} of {name} is closed: {value:.3f} on average, so every step erases the memory": (
        "{name}的遗忘门 {gate} 关死了：平均只有 {value:.3f}，每一步都把记忆抹掉"
    ),
    "forget gate {gate} is {value:.2f} on average in {name}": "{name}的遗忘门 {gate} 平均为 {value:.2f}",
    "no activation of one gate alone can saturate": "没有哪个门单独的激活会饱和",
    "gate {gate} of {name} is saturated {share:.0%} of the time ({low:.0%} shut, {high:.0%} open)": (
        "{name}的门 {gate} 有 {share:.0%} 的时间饱和（{low:.0%} 全关，{high:.0%} 全开）"
    ),
    "{detail}: hardly any gradient passes through it": "{detail}：几乎没有梯度能通过",
    "not known: {steps} steps are too few to call a unit dead": "无法判断：只有 {steps} 步，不能说一个单元死了",
    "{dead} of {units} units of {name} are dead: their output never changes; {saturated} stay at ±1": (
        "{name}的 {units} 个单元中有 {dead} 个是死的，输出从不变化；{saturated} 个停在 ±1"
    ),
    "‖s_t‖ of {name} in the last quarter is × {value:.3g} that in the first": "{name}的 ‖s_t‖ 在最后四分之一是最初四分之一的 {value:.3g} 倍",
    "the state keeps growing: {detail}": "隐状态一直在增大：{detail}",
    "states are bounded: {detail}": "隐状态有界：{detail}",
    "the text has no feature to follow": "文本没有可跟随的特征",
    "unit {unit} of {state}, {layer}, follows {feature}: r = {r:.2f}": "{layer} {state} 的第 {unit} 号单元跟随“{feature}”：r = {r:.2f}",
    "no unit clearly follows a feature; unit {unit} of {state}, {layer}, comes nearest, to {feature}: r = {r:.2f}": (
        "没有单元明显跟随某个特征；最接近的是{layer} {state} 的第 {unit} 号单元与“{feature}”：r = {r:.2f}"
    ),
    "gate {gate} is {mean:.2f} on average along “{text}” and most shut at {token!r}, {value:.2f}": (
        "读“{text}”时门 {gate} 平均为 {mean:.2f}，在 {token!r} 处关得最紧，为 {value:.2f}"
    ),
    "{first}; at the turn, {token!r}, it is {value:.2f}": "{first}；在转折处 {token!r} 为 {value:.2f}",
    # gradients
    "1 % is left after {steps} steps": "{steps} 步后只剩 1 %",
    "more than 1 % is left after {steps} steps": "{steps} 步后还剩 1 % 以上",
    ", 1 % of it is left after {steps:,} steps": "，{steps:,} 步后只剩 1 %",
    "× {decay:.3g} a step in {name}, {reach}": "{name} 中每步 × {decay:.3g}，{reach}",
    "gradients vanish: {detail}": "梯度消失：{detail}",
    "gradients explode: × {decay:.3g} a step in {name}, × {growth:.3g} at most": (
        "梯度爆炸：{name} 中每步 × {decay:.3g}，最多放大 {growth:.3g} 倍"
    ),
    "gradients are preserved: {detail}": "梯度得以保持：{detail}",
    "gradients decay slowly: {detail}": "梯度衰减得慢：{detail}",
    "the terms of {letter} overflow: gradients explode": "{letter} 的各项溢出：梯度爆炸",
    "no gradient reaches {letter}": "没有梯度到达 {letter}",
    "the last {steps} of {T} steps give ∂L/∂{letter} of {name} to within {missing:.0%}; the largest term lies {largest} steps "
    "back and is {share:.0%} of all": (
        "{T} 步中最后 {steps} 步就给出{name}的 ∂L/∂{letter}，误差不超过 {missing:.0%}；最大的一项在 {largest} 步之前，占 {share:.0%}"
    ),
    "the steps furthest back outweigh all others: {detail}": "最远的几步压过了其余各步：{detail}",
    "{letter} learns from next to nothing but the last step: {detail}": "{letter} 几乎只从最后一步学习：{detail}",
    "all steps count: {detail}": "每一步都起作用：{detail}",
    "{letter} learns from {steps} steps: {detail}": "{letter} 从 {steps} 步中学习：{detail}",
    "λ₁ = {exponent:.3g} in {name}: a small change of the state becomes × {factor:.3g} a step{steps}": (
        "{name}中 λ₁ = {exponent:.3g}：状态的微小变化每步 × {factor:.3g}{steps}"
    ),
    "small changes grow (chaos): {detail}": "微小变化被放大（混沌）：{detail}",
    "the past is erased: {detail}": "过去被抹掉：{detail}",
    "the past fades slowly: {detail}": "过去慢慢淡去：{detail}",
    "{cell} multiplies no state by a matrix": "{cell} 不用矩阵乘状态",
    "the largest |λ| is {radius:.3g}, of W of {name}; gates scale it at every step, and carry the memory past it": (
        "最大的 |λ| 为 {radius:.3g}（{name}的 W）；每一步由门缩放，记忆也由门绕过它"
    ),
    "the slope of {kind} is at most {bound:g} ({mean:.2g} on average here), σ₁(W) = {norm:.3g}, largest |λ| {radius:.3g}": (
        "{kind} 的导数最大为 {bound:g}（这里平均 {mean:.2g}），σ₁(W) = {norm:.3g}，最大 |λ| 为 {radius:.3g}"
    ),
    "gradients must vanish, whatever is read: at most × {factor:.3g} a step, 1 % is left after {steps} steps; {detail}": (
        "不论读什么，梯度都必然消失：每步至多 × {factor:.3g}，{steps} 步后只剩 1 %；{detail}"
    ),
    "W makes gradients vanish in the long run: ‖W^{t}‖ = {power:.1g}, × {factor:.3g} a step at most, so that 1 % is left "
    "after {steps} steps; {detail}": (
        "W 使梯度终究消失：‖W^{t}‖ = {power:.1g}，每步至多 × {factor:.3g}，{steps} 步后只剩 1 %；{detail}"
    ),
    "W is large enough to carry gradients on, where units are not saturated: {detail}": "在单元不饱和处，W 足够大，能把梯度传下去：{detail}",
    "{cell} mixes units inside its step: no path is the memory's own": "{cell} 在一步之内混合各单元：记忆没有自己的通路",
    "measured for networks without a projection only": "只对没有投影的网络测量",
    "measured for networks of one direction only": "只对单向网络测量",
    "{share:.0%} of the gradient {lag} steps back came along {memory} of {name} alone (× {own:.3g} a step; along all other "
    "paths × {others:.3g})": (
        "往回 {lag} 步的梯度有 {share:.0%} 只沿{name}的 {memory} 而来（每步 × {own:.3g}；其余通路每步 × {others:.3g}）"
    ),
    "{memory} carries the gradient: {detail}": "梯度由 {memory} 传递：{detail}",
    "other paths carry the gradient: {detail}": "梯度由其余通路传递：{detail}",
    # texts
    "no window cut its gradients": "没有窗口截断梯度",
    "not known: the text is too short for contexts beyond the window of {window}": "无法判断：文本太短，没有超出窗口 {window} 的上下文",
    "context from beyond its {window} steps lowers the loss by {gain:.3f} nats a token, "
    "{share:.0%} of what all context brings": (
        "超出 {window} 步的上下文使损失每词元降低 {gain:.3f} 奈特，占全部上下文所带来的 {share:.0%}"
    ),
    "the window is long enough: {detail}": "截断窗口够长：{detail}",
    "the window is too short: {detail}, and nothing teaches the network to use it": "截断窗口过短：{detail}，却没有什么教网络去利用它",
    "{used} tokens bring all that {longest} bring: {gain:.2f} nats less than the last token alone": (
        "{used} 个词元就带来 {longest} 个词元的全部好处：比只看最后一个词元低 {gain:.2f} 奈特"
    ),
    "hardly any context is used: {detail}": "几乎没有利用上下文：{detail}",
    "context is used: {detail}": "利用了上下文：{detail}",
    "a state carried into a window of {length} is worth {gain:.3f} nats a token, {late:.3f} in its second half": (
        "延续到长 {length} 的窗口中的状态，每词元值 {gain:.3f} 奈特，在后一半值 {late:.3f}"
    ),
    "carrying the state does harm: {detail}": "延续状态反而有害：{detail}",
    "one prediction depends on tokens {lag:.1f} back on average; {last:.0%} of it on the last one": (
        "一次预测平均依赖 {lag:.1f} 个词元之前；其中 {last:.0%} 靠最后一个词元"
    ),
    "{mine:.0%} of the {order}-grams that it writes occur in the training text, {usual:.0%} of those of new text": (
        "它写出的 {order} 元组有 {mine:.0%} 出现在训练文本中，新文本为 {usual:.0%}"
    ),
    "it writes out its training text: {detail}": "它在照抄训练文本：{detail}",
    "what it writes is new: {detail}": "它写的是新的：{detail}",
    "knowing the place t in the text gains {gain:.3f} nats a token on blocks held out ({without:.3f} → {with_:.3f})": (
        "知道在文本中的位置 t，在留出的片段上每词元得益 {gain:.3f} 奈特（{without:.3f} → {with_:.3f}）"
    ),
    "the error depends on the place in the text: {detail}": "误差与文本中的位置有关：{detail}",
    "the error does not depend on the place in the text: {detail}": "误差与文本中的位置无关：{detail}",
    # other tasks
    "the network of this {task} run ({network}) has no recurrent layer that reads along time: gradient flow, gates, "
    "saturation, states and the spectrum of W are not measured; how its training went is": (
        "这个 {task} 任务的网络（{network}）没有沿时间读取的循环层：不测量梯度流、门、饱和、隐状态和 W 的谱；测量训练过程"
    ),
    "not known: sequences of {steps} steps are too short to tell how far gradients reach; {fewest} are needed": (
        "无法判断：{steps} 步的序列太短，看不出梯度走多远；至少要 {fewest} 步"
    ),
    "it never says {names}, {count} of {classes} classes that occur": "它从不预测 {names}：出现的 {classes} 类中有 {count} 类如此",
    "all validation examples are right": "验证集样本全部正确",
    "most often {right} is taken for {wrong}, {count:,} times; {worst} is found least, {recall:.0%} of the time": (
        "最常把 {right} 认作 {wrong}，{count:,} 次；{worst} 最难认出，召回率 {recall:.0%}"
    ),
    "{mistake}; its probabilities are off by {ece:.0%} on average": "{mistake}；它给的概率平均偏差 {ece:.0%}",
    "not known: {count} examples of nearly one length are too few to compare": "无法判断：{count} 个长度几乎相同的样本不足以比较",
    "{short:.0%} right at up to {low} steps, {long:.0%} at {high} and more": "不超过 {low} 步的正确率 {short:.0%}，{high} 步以上的 {long:.0%}",
    "long inputs are harder: {detail}": "长的输入更难：{detail}",
    "long inputs are no harder: {detail}": "长的输入并不更难：{detail}",
    "it has no attention: all that it knows of its source is one state": "它没有注意力：对源序列的了解只有一个状态",
    "not known: it wrote nothing": "无法判断：它什么也没写",
    "a symbol looks at {blurred:.0%} of the places of its source, and {covered:.0%} of them get half a look or more": (
        "每个符号看向源序列 {blurred:.0%} 的位置，{covered:.0%} 的位置至少得到半次注视"
    ),
    "attention is blurred: {detail}": "注意力分散：{detail}",
    "parts of the source are left out: {detail}": "源序列有的部分被漏掉：{detail}",
    "attention is sharp and covers its source: {detail}": "注意力集中，并覆盖源序列：{detail}",
    "not known: the trees are too shallow or too few to compare depths": "无法判断：树太浅或太少，不足以比较深度",
    "from leaves {first} to {last} below the root the gradient changes by × {left:.2g}, × {factor:.2g} a level": (
        "从根下 {first} 层到 {last} 层的叶，梯度 × {left:.2g}，每层 × {factor:.2g}"
    ),
    "gradients vanish on the way down: {detail}": "梯度在向下途中消失：{detail}",
    "gradients reach deep leaves: {detail}": "梯度能到达深处的叶：{detail}",
    "not known: fewer than {count} forecasts in a row were measured": "无法判断：连续的预测不足 {count} 次",
    "bias {bias:+.2f} deviations, correlation {rho:+.2f} with {lag} steps before": "偏差 {bias:+.2f} 个标准差，与 {lag} 步之前的相关系数 {rho:+.2f}",
    "forecasts are biased: {detail}": "预测有偏：{detail}",
    "residuals follow each other: something is left that could be forecast: {detail}": "残差前后相关，还有可以预测的成分：{detail}",
    "residuals look like noise: {detail}": "残差像噪声：{detail}",
    "not known: {count} forecasts are too few to tell how often bands cover": "无法判断：{count} 次预测太少，看不出预测区间的覆盖率",
    "bands of {nominal:.0%} cover {covered:.0%}": "{nominal:.0%} 的预测区间实际覆盖 {covered:.0%}",
    "bands are {way}: {detail}": "预测区间{way}：{detail}",
    "bands hold: {detail}": "预测区间可信：{detail}",
    "{count} of {all} features are hardly heard, the first of them number {first}": "{all} 个特征中有 {count} 个几乎不起作用，第一个是第 {first} 号",
    "all {all} features are heard, number {most} the most": "{all} 个特征都起作用，第 {most} 号最重要",
    "What was measured: {problems} of {count} findings are problems, worst first": "测量结果：{count} 项中有 {problems} 项是问题，最严重的在前",
}
