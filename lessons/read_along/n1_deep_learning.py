# %% [markdown] lang="en"
r"""
# 1. Chapter 10 of *Deep Learning*

Follows chapter 10, “Sequence Modeling: Recurrent and Recursive Nets”, of *Deep Learning* (Goodfellow, Bengio and Courville), section by
section, in the order of the first note. Each equation is followed by the file and line that has it, a few lines of Python, and what they give.

One letter for one matrix throughout: $U$ multiplies the input, $W$ the state before, $V$ makes the output; $b$ and $c$ are their biases.
"""

# %% [markdown] lang="zh"
r"""
# 1. 《深度学习》第 10 章

本页对照《深度学习》（Goodfellow、Bengio、Courville 著）第 10 章“序列建模：循环和递归网络”，按第一篇笔记的顺序逐节展开：
先写公式，再给出公式所在的文件和行号，然后是几行 Python，最后是运行结果。

全书符号固定：$U$ 乘输入，$W$ 乘上一时刻的状态，$V$ 给出输出；$b$、$c$ 是相应的偏置。
"""

# %% [markdown] lang="en"
r"""
## 10.1 Unfolding computational graphs

A dynamical system, driven by an input: $s^{(t)} = f(s^{(t-1)}, x^{(t)}; \theta)$. Unfolded, it is one function of everything that was read, $h^{(t)} = g^{(t)}(x^{(t)}, \dots, x^{(1)})$;
folded, it is the same $f$ with the same weights at every step, whatever the length.

- one step, the definition: [[recur.cells.elman.Elman.step: x.h + h.h]]
- carried along a sequence: [[recur.scan.loop.run]]

Step by step, or all at once: the same numbers. And the state is as large after 600 steps as after six: a *lossy* summary of the past.
"""

# %% [markdown] lang="zh"
r"""
## 10.1 展开计算图

由输入驱动的动态系统：$s^{(t)} = f(s^{(t-1)}, x^{(t)}; \theta)$。展开来看，它是全部历史输入的函数 $h^{(t)} = g^{(t)}(x^{(t)}, \dots, x^{(1)})$；
折叠来看，每一步都是同一个 $f$、同一组参数，与序列长度无关。

- 一步，即定义本身：[[recur.cells.elman.Elman.step: x.h + h.h]]
- 沿序列逐步推进：[[recur.scan.loop.run]]

逐步计算与一次算完，得数相同。读了 600 步之后，状态的大小与读 6 步时一样——所以它只能是对过去的*有损*概括。
"""

# %%
import torch

from recur import Recurrent

network = Recurrent("elman", input_size=3, hidden_size=4)
x = torch.randn(1, 6, 3)  # (B, T, D)

state, steps = None, []
for t in range(6):
    output, state, _ = network(x[:, t : t + 1], state)  # s = f(s, x_t), the same f each time
    steps.append(output)
difference = (torch.cat(steps, dim=1) - network(x).outputs).abs().max().item()
print(f"step by step or unfolded, largest difference: {difference:.1e}")
for T in (6, 600):
    print(f"after {T:3} steps the state has", network(torch.randn(1, T, 3)).state[0].h.numel(), "numbers")
assert difference < 1e-6

# %% [markdown] lang="en"
r"""
## 10.2 Three patterns

| pattern | what comes back | here | command |
| --- | --- | --- | --- |
| I | hidden → hidden: $h^{(t)}$ reads $h^{(t-1)}$ | [[recur.layers.recurrent.Recurrent]] | `recur train tagged.conll --task tag --recurrence hidden` |
| II | output → hidden: $h^{(t)}$ reads $o^{(t-1)}$ alone | [[recur.layers.output_recurrence.OutputRecurrent]] | `recur train tagged.conll --task tag --recurrence output` |
| III | hidden → hidden, one output at the end | [[recur.models.reader.Classifier]] | `recur train names.tsv --task classify` |
"""

# %% [markdown] lang="zh"
r"""
## 10.2 三种基本结构

| 结构 | 反馈的是什么 | 在这里 | 命令 |
| --- | --- | --- | --- |
| 一 | 隐藏到隐藏：$h^{(t)}$ 读 $h^{(t-1)}$ | [[recur.layers.recurrent.Recurrent]] | `recur train tagged.conll --task tag --recurrence hidden` |
| 二 | 输出到隐藏：$h^{(t)}$ 只读 $o^{(t-1)}$ | [[recur.layers.output_recurrence.OutputRecurrent]] | `recur train tagged.conll --task tag --recurrence output` |
| 三 | 隐藏到隐藏，只在序列末尾输出一次 | [[recur.models.reader.Classifier]] | `recur train names.tsv --task classify` |
"""

# %%
from torch import nn

from recur.layers import OutputRecurrent

V = nn.Linear(4, 2)
one = V(network(x).outputs)  # I: an output at every step
two = OutputRecurrent(input_size=3, hidden_size=4, output_size=2)(x)  # II: the output before is all that is kept
three = V(network(x).outputs[:, -1])  # III: one output, of the last state
print("I", tuple(one.shape), "  II", tuple(two.shape), "  III", tuple(three.shape))

# %% [markdown] lang="en"
r"""
The forward pass of pattern I, with $\tanh$ and softmax:

$$a^{(t)} = b + W h^{(t-1)} + U x^{(t)} \qquad h^{(t)} = \tanh(a^{(t)}) \qquad o^{(t)} = c + V h^{(t)} \qquad \hat y^{(t)} = \operatorname{softmax}(o^{(t)})$$

$$L = -\sum_{t=1}^{\tau} \log p_{\text{model}}(y^{(t)} \mid x^{(1)}, \dots, x^{(t)})$$

- $a$ and $h$: [[recur.reference.elman.step_forward: s_next = phi]]
- $o$: [[recur.reference.network.output_forward: o = parameters]]
- $\hat y$: [[recur.reference.network.softmax: e / e.sum]]
- $L$, summed over time: [[recur.reference.network.negative_log_likelihood: -np.log]]

Steps wait for each other, and each keeps what its way back will need: time and memory are $\Theta(\tau)$.
"""

# %% [markdown] lang="zh"
r"""
结构一的前向传播，激活函数取 $\tanh$，输出取 softmax：

$$a^{(t)} = b + W h^{(t-1)} + U x^{(t)} \qquad h^{(t)} = \tanh(a^{(t)}) \qquad o^{(t)} = c + V h^{(t)} \qquad \hat y^{(t)} = \operatorname{softmax}(o^{(t)})$$

$$L = -\sum_{t=1}^{\tau} \log p_{\text{model}}(y^{(t)} \mid x^{(1)}, \dots, x^{(t)})$$

- $a$ 与 $h$：[[recur.reference.elman.step_forward: s_next = phi]]
- $o$：[[recur.reference.network.output_forward: o = parameters]]
- $\hat y$：[[recur.reference.network.softmax: e / e.sum]]
- $L$，对时间求和：[[recur.reference.network.negative_log_likelihood: -np.log]]

后一步必须等前一步算完，而每一步又要为反向传播留下中间结果：时间与空间复杂度都是 $\Theta(\tau)$。
"""

# %%
import numpy as np

from recur.reference import elman, network as textbook, sequence

draw = np.random.default_rng(0)
D, H, K, m, T = 3, 4, 5, 2, 6
p = {name: draw.normal(size=size) / 2 for name, size in
     {"U": (H, D), "W": (H, H), "b": (H, 1), "V": (K, H), "c": (K, 1)}.items()}  # fmt: skip
x = draw.normal(size=(D, m, T))  # features, batch, time: as the notes have it
y = draw.integers(0, K, (m, T))
h0 = np.zeros((H, m))

h, L = h0, 0.0
for t in range(T):  # the four equations, as they stand above
    h = np.tanh(p["b"] + p["W"] @ h + p["U"] @ x[:, :, t])
    o = p["c"] + p["V"] @ h
    y_hat = np.exp(o) / np.exp(o).sum(0)
    L -= np.log(y_hat[y[:, t], range(m)]).sum()
print(f"L by hand {L:.10f}, by recur.reference {textbook.loss(elman, x, y, (h0,), p):.10f}")
assert abs(L - textbook.loss(elman, x, y, (h0,), p)) < 1e-9

for tau in (10, 20, 40):
    _, _, kept = sequence.forward(elman, draw.normal(size=(D, m, tau)), (h0,), p)
    print(f"τ = {tau}: {len(kept)} steps, one after the other; {sum(c[0].size for c in kept)} states kept")

# %% [markdown] lang="en"
r"""
## 10.2.1 Teacher forcing, and networks with output recurrence

In pattern II, $h^{(t)}$ sees the past through $o^{(t-1)}$ alone. Maximum likelihood says which $o^{(t-1)}$ to use while learning: the true one,

$$\log p(y^{(1)}, y^{(2)} \mid x^{(1)}, x^{(2)}) = \log p(y^{(2)} \mid y^{(1)}, x^{(1)}, x^{(2)}) + \log p(y^{(1)} \mid x^{(1)}, x^{(2)})$$

(the book's 10.16; the note's second term repeats $y^{(t-1)}$ in front of the bar, where the chain rule has it behind). So no step waits for another:
[[recur.layers.output_recurrence.OutputRecurrent.forward: targets[:, :-1]]]. All steps are one product, and no gradient crosses time.
"""

# %% [markdown] lang="zh"
r"""
## 10.2.1 教师强制与输出循环网络

在结构二里，$h^{(t)}$ 只能通过 $o^{(t-1)}$ 看到过去。学习时该用哪个 $o^{(t-1)}$？最大似然给出了答案——用真实值：

$$\log p(y^{(1)}, y^{(2)} \mid x^{(1)}, x^{(2)}) = \log p(y^{(2)} \mid y^{(1)}, x^{(1)}, x^{(2)}) + \log p(y^{(1)} \mid x^{(1)}, x^{(2)})$$

（书中式 10.16；笔记把第二项中的 $y^{(t-1)}$ 也写到了竖线左边，按链式法则它应当只在右边。）于是各步互不等待：
[[recur.layers.output_recurrence.OutputRecurrent.forward: targets[:, :-1]]]。所有时间步合成一次矩阵乘法，梯度不跨时间步。
"""

# %%
from torch.nn.functional import one_hot

torch.manual_seed(0)
net = OutputRecurrent(3, 16, 2)
x = torch.randn(8, 20, 3, requires_grad=True)
targets = one_hot(torch.randint(2, (8, 20)), 2).float()

at_once = net(x, targets)
in_turn = net.run(x, lambda t, o: targets[:, t], torch.zeros(8, 2))  # the same, one step after the other
print(f"at once or in turn: {(at_once - in_turn).abs().max().item():.1e} apart")
(crossed,) = torch.autograd.grad(at_once[:, 5].sum(), x)
print("steps that the loss of step 5 reaches:", crossed.abs().sum((0, 2)).nonzero().flatten().tolist())
assert torch.allclose(at_once, in_turn, atol=1e-6)
assert crossed.abs().sum((0, 2)).nonzero().flatten().tolist() == [5]

# %% [markdown] lang="en"
r"""
In use there is no teacher, and a network that has only ever read true outputs now reads its own. Below, $y_t = \tanh(1.5\, y_{t-1} + x_t)$ is to be told from $x$: measured with
the teacher the error is small, running free each error feeds the next. A mixture while learning (*scheduled sampling*) is drawn by
[[recur.tasks.teacher.Teacher.draw]]; on the command line `--teacher linear:1:0.5`, and every run of `seq2seq` and `conditional` records
`valid_gap`, the difference of the two losses.
"""

# %% [markdown] lang="zh"
r"""
实际使用时没有教师：训练时只读过真实输出的网络，现在要读自己的输出。下面要由 $x$ 求出 $y_t = \tanh(1.5\, y_{t-1} + x_t)$：有教师时误差很小；自由运行时，上一步的误差会喂出下一步的误差。
训练时按概率混用两者（计划采样，scheduled sampling）由 [[recur.tasks.teacher.Teacher.draw]] 抽取；命令行上写 `--teacher linear:1:0.5`。
`seq2seq` 与 `conditional` 的每次训练都会记录 `valid_gap`，即两种损失之差。
"""

# %%
from recur.tasks.teacher import Teacher


def series(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """y_t = tanh(1.5 y_{t−1} + x_t)."""
    x, y = torch.randn(rows, 30, 1) / 2, [torch.zeros(rows, 1)]
    for t in range(30):
        y.append(torch.tanh(1.5 * y[-1] + x[:, t]))
    return x, torch.stack(y[1:], dim=1)


def learn(teacher: str, steps: int = 300) -> tuple[float, float]:  # quick: 300 → 60
    torch.manual_seed(0)
    net, how = OutputRecurrent(1, 24, 1, feed="output"), Teacher.parse(teacher)
    optimiser = torch.optim.Adam(net.parameters(), 0.01)
    for step in range(steps):
        x, y = series(32)
        forced = how.draw(32, 30, step, step / steps)
        fed = lambda t, o: y[:, t] if forced is None else torch.where(forced[:, t, None], y[:, t], o)  # noqa: B023, E731
        loss = (net.run(x, fed, torch.zeros(32, 1)) - y).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    x, y = series(500)
    with torch.no_grad():
        return (net(x, y) - y).square().mean().item(), (net(x) - y).square().mean().item()


for teacher in ("always", "linear:1:0"):
    taught, free = learn(teacher)
    print(f"--teacher {teacher:10}  error with the teacher {taught:.5f}, running free {free:.5f}, gap {free - taught:.5f}")
    assert free > taught

# %% [markdown] lang="en"
r"""
## 10.2.2 Computing the gradient

Every $\nabla$ of the section, derived by hand, beside what autograd finds:

| | equation | where |
| --- | --- | --- |
| $\nabla_{o^{(t)}} L$ | $\hat y^{(t)} - \mathbf 1_{y^{(t)}}$ | [[recur.reference.network.output_backward: -= 1]] |
| $\nabla_{h^{(\tau)}} L$ | $V^\top \nabla_{o^{(\tau)}} L$ | [[recur.reference.network.output_backward: ds=np.einsum]] |
| $\nabla_{h^{(t)}} L$ | $V^\top \nabla_{o^{(t)}} L + W^\top \operatorname{diag}(1 - (h^{(t+1)})^2)\, \nabla_{h^{(t+1)}} L$ | [[recur.reference.sequence.backward: dstate = (ds]] |
| $\nabla_c L$ | $\sum_t \nabla_{o^{(t)}} L$ | [[recur.reference.network.output_backward: dc=]] |
| $\nabla_V L$ | $\sum_t \nabla_{o^{(t)}} L\; h^{(t)\top}$ | [[recur.reference.network.output_backward: dV=]] |
| $\nabla_b L$ | $\sum_t \operatorname{diag}(1 - (h^{(t)})^2)\, \nabla_{h^{(t)}} L$ | [[recur.reference.elman.step_backward: da = phi_prime]] |
| $\nabla_W L$, $\nabla_U L$ | $\sum_t \operatorname{diag}(1 - (h^{(t)})^2)\, \nabla_{h^{(t)}} L\; h^{(t-1)\top}$, the same with $x^{(t)\top}$ | [[recur.reference.elman.step_backward: weights = ]] |
"""

# %% [markdown] lang="zh"
r"""
## 10.2.2 计算梯度

本节的每一个 $\nabla$ 都由手工推导，并与自动微分的结果对照：

| | 公式 | 所在位置 |
| --- | --- | --- |
| $\nabla_{o^{(t)}} L$ | $\hat y^{(t)} - \mathbf 1_{y^{(t)}}$ | [[recur.reference.network.output_backward: -= 1]] |
| $\nabla_{h^{(\tau)}} L$ | $V^\top \nabla_{o^{(\tau)}} L$ | [[recur.reference.network.output_backward: ds=np.einsum]] |
| $\nabla_{h^{(t)}} L$ | $V^\top \nabla_{o^{(t)}} L + W^\top \operatorname{diag}(1 - (h^{(t+1)})^2)\, \nabla_{h^{(t+1)}} L$ | [[recur.reference.sequence.backward: dstate = (ds]] |
| $\nabla_c L$ | $\sum_t \nabla_{o^{(t)}} L$ | [[recur.reference.network.output_backward: dc=]] |
| $\nabla_V L$ | $\sum_t \nabla_{o^{(t)}} L\; h^{(t)\top}$ | [[recur.reference.network.output_backward: dV=]] |
| $\nabla_b L$ | $\sum_t \operatorname{diag}(1 - (h^{(t)})^2)\, \nabla_{h^{(t)}} L$ | [[recur.reference.elman.step_backward: da = phi_prime]] |
| $\nabla_W L$、$\nabla_U L$ | $\sum_t \operatorname{diag}(1 - (h^{(t)})^2)\, \nabla_{h^{(t)}} L\; h^{(t-1)\top}$，后者把 $h^{(t-1)\top}$ 换成 $x^{(t)\top}$ | [[recur.reference.elman.step_backward: weights = ]] |
"""

# %%
x = draw.normal(size=(D, m, T))
loss, by_hand = textbook.loss_and_gradients(elman, x, y, (h0,), p)

w = {name: torch.tensor(value, requires_grad=True) for name, value in p.items()}
h, o, hs, os = torch.tensor(h0), None, [], []
for t in range(T):
    h = torch.tanh(w["b"] + w["W"] @ h + w["U"] @ torch.tensor(x[:, :, t]))
    o = w["c"] + w["V"] @ h
    hs.append(h)
    os.append(o)
    h.retain_grad()
    o.retain_grad()
sum(nn.functional.cross_entropy(o.T, torch.tensor(y[:, t]), reduction="sum") for t, o in enumerate(os)).backward()

found = {"o": (by_hand.do, torch.stack([o.grad for o in os], 2)), "h": (by_hand.dh, torch.stack([h.grad for h in hs], 2))}
found |= {name: (by_hand.weights[f"d{name}"], w[name].grad) for name in "cbVWU"}
for name, (ours, autograd) in found.items():
    print(f"∇_{name} L  {ours.shape!s:10}  by hand and by autograd {abs(ours - autograd.numpy()).max():.0e} apart")
    assert abs(ours - autograd.numpy()).max() < 1e-12

# %% [markdown] lang="en"
r"""
## 10.2.3 Recurrent networks as directed graphical models

Without inputs from outside, the network is a distribution over whole sequences,

$$P(y^{(1)}, \dots, y^{(\tau)}) = \prod_{t=1}^{\tau} P(y^{(t)} \mid y^{(t-1)}, \dots, y^{(1)})$$

and unlike a Markov chain it does not forget $y^{(1)}$ once $y^{(2)}$ is known: what is remembered travels along $y^{(1)} \to h^{(2)} \to \dots \to h^{(t)}$. In the code, $\log P$ of a text is the sum of
its tokens' shares: [[recur.tasks.language.predictor.Language.logprob]] (`recur logprob RUN "a text"`).
"""

# %% [markdown] lang="zh"
r"""
## 10.2.3 作为有向图模型的循环网络

没有外部输入时，网络就是整个序列上的一个概率分布：

$$P(y^{(1)}, \dots, y^{(\tau)}) = \prod_{t=1}^{\tau} P(y^{(t)} \mid y^{(t-1)}, \dots, y^{(1)})$$

与马尔可夫链不同，知道 $y^{(2)}$ 之后它并不会忘掉 $y^{(1)}$：信息沿着 $y^{(1)} \to h^{(2)} \to \dots \to h^{(t)}$ 传下去。在代码中，一段文本的 $\log P$ 是各词元之和：
[[recur.tasks.language.predictor.Language.logprob]]（命令 `recur logprob RUN "一段文本"`）。
"""

# %%
from itertools import product

torch.manual_seed(1)
k, tau = 3, 4
network, V = Recurrent("elman", k, 8, init="orthogonal"), nn.Linear(8, k)


def chances(before: tuple[int, ...]) -> torch.Tensor:
    """P(y_t | what came before), the first step reading zeros."""
    x = torch.cat([torch.zeros(1, k), one_hot(torch.tensor(before, dtype=torch.long), k).float()])
    return V(network(x[None]).outputs)[0, -1].softmax(-1)


with torch.no_grad():
    total = sum(torch.stack([chances(s[:t])[s[t]] for t in range(tau)]).prod() for s in product(range(k), repeat=tau))
    after = [chances((first, 0)) for first in range(k)]
print(f"all {k**tau} sequences of {tau} together: {total.item():.6f}")
print("P(y₃ | y₂ = 0, y₁) for y₁ = 0, 1, 2:", *(p.numpy().round(3) for p in after))
assert abs(total - 1) < 1e-5
assert not torch.allclose(after[0], after[1], atol=1e-3)

# %% [markdown] lang="en"
r"""
A table of those conditional probabilities has $O(k^\tau)$ numbers; the network has as many as it has weights, whatever $\tau$: [[recur.probes.lab.parameters.parameters]].
"""

# %% [markdown] lang="zh"
r"""
若用表格存储这些条件概率，需要 $O(k^\tau)$ 个数；而网络的参数个数与 $\tau$ 无关：[[recur.probes.lab.parameters.parameters]]。
"""

# %% [sh]
"""
recur lab parameters --k 100 --tau 6 --figure parameters.svg
"""

# %% [markdown] lang="en"
r"""
Sharing assumes that the conditional distribution is *stationary*: the same at every $t$. Where it is not, give the network $t$ as one more input: [[recur.models.time.beside]], `--time-input` on the
command line; `recur xray` measures whether it would help ([[recur.probes.stationary.stationarity]]). $\tau(t)$ rises from −1 to 1 over the length that was learned from, and slowly beyond:
"""

# %% [markdown] lang="zh"
r"""
参数共享的前提是条件分布*平稳*，即在每个 $t$ 上都相同。若不平稳，可以把 $t$ 作为额外输入：[[recur.models.time.beside]]，命令行上是 `--time-input`；
这样做是否值得，由 `recur xray` 测量（[[recur.probes.stationary.stationarity]]）。在训练长度之内 $\tau(t)$ 从 −1 升到 1，之后上升得越来越慢：
"""

# %%
from recur.models.time import scaled

print([round(v, 2) for v in scaled(torch.tensor([0, 25, 50, 75, 100, 200, 400]), scale=100).tolist()])

# %% [markdown] lang="en"
r"""
**When to stop**: the book's three ways, each one option of a network that writes (`--stop`), and where each is in the loss:

| | what is learned | where |
| --- | --- | --- |
| `eos` | a symbol of its own at the end | [[recur.models.decoder.Decoder.losses: EOS]] |
| `bernoulli` | an output of its own: is it over? | [[recur.models.decoder.Decoder.losses: softplus]] |
| `length` | $P(\tau)$ first, and how much is left as an input: $P(x^{(1)} \dots x^{(\tau)}) = P(\tau)\, P(x^{(1)} \dots x^{(\tau)} \mid \tau)$ | [[recur.models.decoder.Decoder.losses: cross_entropy(scores.length]] |
"""

# %% [markdown] lang="zh"
r"""
**何时停止**：书中的三种办法，各对应生成网络的一个选项（`--stop`），也各在损失中占一行：

| | 学的是什么 | 所在位置 |
| --- | --- | --- |
| `eos` | 序列末尾的特殊符号 | [[recur.models.decoder.Decoder.losses: EOS]] |
| `bernoulli` | 额外的二元输出：结束了吗？ | [[recur.models.decoder.Decoder.losses: softplus]] |
| `length` | 先预测长度 $P(\tau)$，再把剩余步数作为输入：$P(x^{(1)} \dots x^{(\tau)}) = P(\tau)\, P(x^{(1)} \dots x^{(\tau)} \mid \tau)$ | [[recur.models.decoder.Decoder.losses: cross_entropy(scores.length]] |
"""

# %%
from recur.models import Context, Decoder
from recur.models.decoder_options import DecoderOptions

targets, lengths = torch.tensor([[4, 5, 6, 0], [5, 4, 0, 0]]), torch.tensor([3, 2])  # two sequences, padded
context = Context(torch.randn(2, 3))
for stop in ("eos", "bernoulli", "length"):
    decoder = Decoder(8, 3, 0, DecoderOptions(hidden=16, embedding=8, stop=stop, longest=10))
    scores = decoder(context, targets, lengths)
    own = {"eos": scores.symbols, "bernoulli": scores.stop, "length": scores.length}[stop]
    print(f"{stop:10} scores {tuple(own.shape)!s:12} −log P of each sequence {decoder.loss(scores, targets, lengths).tolist()}")

# %% [markdown] lang="en"
r"""
## 10.2.4 Sequences conditioned on context

A vector $x$ reaches a network that writes in three ways, all of them in [[recur.layers.conditioning.Conditioned]]:

1. as an extra input at every step, $R x$, a bias of its own for each sequence: `input`;
2. as the initial state, $h^{(0)}$: `initial`;
3. both: `both`.

A *sequence* as long as what is written is `aligned`: each step its own share $R x^{(t)}$. That the first is a bias, checked: the network with $R$ is the network without, its $b$ moved by $R x$.
"""

# %% [markdown] lang="zh"
r"""
## 10.2.4 以上下文为条件的序列

定长向量 $x$ 进入生成网络有三种途径，都在 [[recur.layers.conditioning.Conditioned]]：

1. 每一步的额外输入 $R x$，相当于给每个序列一个自己的偏置：`input`；
2. 作为初始状态 $h^{(0)}$：`initial`；
3. 两者兼用：`both`。

与输出等长的输入*序列*则是 `aligned`：每一步有自己的 $R x^{(t)}$。下面验证第一种确实等价于偏置：带 $R$ 的网络，就是把 $b$ 挪动 $R x$ 后的普通网络。
"""

# %%
from recur.layers import Conditioned

torch.manual_seed(0)
y, context = torch.randn(1, 5, 3), torch.randn(1, 2)
written = {way: Conditioned("elman", 3, 4, context_size=2, way=way) for way in ("input", "initial", "both")}
for way, net in written.items():
    shapes = {"U and R": tuple(net.recurrent.weight_ih_l0.shape)} | ({"h₀ from x": tuple(net.bridge.weight.shape)} if net.bridge else {})
    print(f"{way:8}", shapes)

U, R = written["input"].recurrent.weight_ih_l0.split([3, 2], dim=1)
plain = Recurrent("elman", 3, 4)
plain.load_state_dict({**written["input"].recurrent.state_dict(), "weight_ih_l0": U})
with torch.no_grad():
    plain.bias_ih_l0 += (R @ context[0]).detach()
difference = (plain(y).outputs - written["input"](y, context).outputs).abs().max().item()
print(f"R x as an input, or in the bias: {difference:.1e} apart")
assert difference < 1e-6

# %% [markdown] lang="en"
r"""
Pattern I assumes outputs that are independent given the inputs, $\prod_t P(y^{(t)} \mid x^{(1)}, \dots, x^{(t)})$. An edge from the output before to the next state removes that assumption:
`--feedback`, [[recur.models.decoder.Decoder.inputs: o.feedback]]. Without the edge, another first symbol changes nothing at the second step:
"""

# %% [markdown] lang="zh"
r"""
结构一假设给定输入后各输出相互独立，即 $\prod_t P(y^{(t)} \mid x^{(1)}, \dots, x^{(t)})$。从上一时刻输出连一条边到下一时刻的隐藏单元，就去掉了这个假设：
`--feedback`，[[recur.models.decoder.Decoder.inputs: o.feedback]]。没有这条边，换掉第一个符号，第二步毫无变化：
"""

# %%
for feedback in (True, False):
    decoder = Decoder(8, 3, 0, DecoderOptions(hidden=16, embedding=8, feedback=feedback))
    a, b = (decoder(Context(torch.ones(1, 3)), torch.tensor([[y1, 6]]), torch.tensor([2])).symbols[0, 1] for y1 in (4, 5))
    print(f"feedback {feedback!s:5}: another y₁ moves the scores of y₂ by {(a - b).abs().max().item():.3f}")
    assert bool((a - b).abs().max() > 0) == feedback

# %% [markdown] lang="en"
r"""
## 10.3 Bidirectional networks, and two dimensions

One state from the left, one from the right; the output sees both: `direction="both"`, [[recur.layers.recurrent.Recurrent.forward: MERGED]]. Does it “extend naturally to two dimensions”, as the book says and the note doubts? Yes: a point reads the
neighbours above and to the left, and four corners do for a grid what two directions do for a sequence, [[recur.layers.grid.Grid]]. Which inputs does the output at one place depend on?
"""

# %% [markdown] lang="zh"
r"""
## 10.3 双向网络与二维扩展

一个状态从左读来，一个从右读来，输出同时看到两者：`direction="both"`，[[recur.layers.recurrent.Recurrent.forward: MERGED]]。书上说这可以自然推广到二维，笔记问“真的吗”。真的：网格上每一点读它上方和左方的邻居；
对网格来说，四个角就相当于序列的两个方向，见 [[recur.layers.grid.Grid]]。某一处的输出依赖哪些输入？
"""

# %%
from recur.layers import Grid


def reach(network: nn.Module, x: torch.Tensor, at: tuple[int, ...]) -> torch.Tensor:
    """Where the output at a place has a gradient."""
    x = x.clone().requires_grad_()
    out = network(x)
    out = out if isinstance(out, torch.Tensor) else out.outputs
    (gradient,) = torch.autograd.grad(out[(0, *at)].sum(), x)
    return (gradient.abs().sum(-1)[0] > 0).int()


for direction in ("forward", "both"):
    print(f"{direction:8} output 2 sees", reach(Recurrent("elman", 2, 4, direction=direction), torch.randn(1, 6, 2), (2,)).tolist())
for corners in (1, 4):
    seen = reach(Grid("net", 2, 4, corners=corners), torch.randn(1, 4, 6, 2), (1, 2))
    print(f"{corners} corner{'s' * (corners > 1)}: output (1, 2) sees\n{seen.numpy()}")
assert seen.all()

# %% [markdown] lang="en"
r"""
On images: `recur train digits.npz --task grid` ([trees and grids](../beyond-the-chain.md)).

## 10.4 Encoder–decoder

A sequence to a sequence of another length: the encoder's last state is the context $C$, from which the decoder starts, [[recur.models.seq2seq.Seq2Seq]]. Its trouble, which the book's next pages name, is that one vector must hold
the whole source; attention looks at all of the encoder's states instead,
$a_{ts} = \operatorname{softmax}_s \operatorname{score}(q_t, m_s)$, $c_t = \sum_s a_{ts} m_s$: [[recur.layers.attention.Attention.forward: weights = scores.softmax]].

Words written backwards, both ways, the same steps:
"""

# %% [markdown] lang="zh"
r"""
在图像上：`recur train digits.npz --task grid`（见[树与网格](../beyond-the-chain.md)）。

## 10.4 编码器—解码器

把一个序列变成另一个不等长的序列：编码器的最后状态就是上下文 $C$，解码器由它起步，见 [[recur.models.seq2seq.Seq2Seq]]。问题也在这里：整个源序列都要塞进一个向量。
注意力转而去看编码器的所有状态：$a_{ts} = \operatorname{softmax}_s \operatorname{score}(q_t, m_s)$，$c_t = \sum_s a_{ts} m_s$，见 [[recur.layers.attention.Attention.forward: weights = scores.softmax]]。

任务：把单词倒着写。两种做法，训练步数相同：
"""

# %%
import random

import recur

random.seed(0)
words = ["".join(random.choices("abcdefgh", k=random.randint(3, 8))) for _ in range(6000)]
pairs = [(word, word[::-1]) for word in words]
models = {}
for attention in ("none", "additive"):
    models[attention] = recur.fit(pairs, task="seq2seq", attention=attention, hidden=64, embedding=32, steps=500, longest=12, seed=0)  # quick: 500 → 3
    figures = models[attention].evaluate()
    print(f"attention {attention:8}  words wrong {figures['sequence_error_rate']:.1%}, abcdefgh → {models[attention]('abcdefgh')}")

# %%
from recur.probes.figures import canvas

looked = models["additive"].predict("abcdefgh", attention=True)["attention"]
figure, (axis,) = canvas(width=4.4, height=3.6)
axis.imshow(looked["weights"], cmap="Blues", vmin=0, vmax=1)
axis.set(xticks=range(len(looked["source"])), xticklabels=looked["source"], xlabel="m_s", ylabel="y_t", title="a_ts")
axis.set_yticks(range(len(looked["target"])), looked["target"])
figure

# %% [markdown] lang="en"
r"""
More of it: [sequences from sequences](../sequences.md) (`recur train pairs.tsv --task seq2seq`).

## 10.5 Deep recurrent networks

Three places to deepen, three numbers of [[recur.layers.options.Depth]]: layers between input and hidden, between hidden and hidden, between hidden and output; and a state above a state, `layers`. A deep transition makes the path
from step to step longer, so the book adds a skip connection around it: [[recur.cells.deep.DeepTransition.multiplied: self.skip]].
"""

# %% [markdown] lang="zh"
r"""
更多内容见[序列到序列](../sequences.md)（`recur train pairs.tsv --task seq2seq`）。

## 10.5 深度循环网络

可以加深的地方有三处，对应 [[recur.layers.options.Depth]] 的三个数：输入到隐藏、隐藏到隐藏、隐藏到输出；另外还可以把状态叠在状态之上，即 `layers`。
加深隐藏到隐藏的变换会拉长相邻两步之间的路径，所以书中在旁边加了跳跃连接：[[recur.cells.deep.DeepTransition.multiplied: self.skip]]。
"""

# %%
from recur.layers import Depth

for name, made in {
    "shallow": Recurrent("elman", 8, 16),
    "deeper input     --depth-input 1": Recurrent("elman", 8, 16, depth=Depth(input=1)),
    "deeper transition --depth-transition 1": Recurrent("elman", 8, 16, depth=Depth(transition=1)),
    "deeper output    --depth-output 1": Recurrent("elman", 8, 16, depth=Depth(output=1)),
    "layers           --layers 2": Recurrent("elman", 8, 16, layers=2),
}.items():
    print(f"{name:40} {sum(w.numel() for w in made.parameters()):5} weights, outputs {tuple(made(torch.randn(1, 5, 8)).outputs.shape)}")

# %% [markdown] lang="en"
r"""
## 10.6 Recursive networks

A tree in place of a chain: $O(\tau)$ steps become $O(\log \tau)$, if the tree is balanced. The equations of a node, [[recur.layers.compose: a = U x + b + ]]; a whole level is one product, [[recur.layers.tree.Forest]]. The tree is given by the data
(a parse), or does not depend on it: `--structure balanced`.
"""

# %% [markdown] lang="zh"
r"""
## 10.6 递归神经网络

用树代替链：若树是平衡的，深度由 $O(\tau)$ 降到 $O(\log \tau)$。结点的方程见 [[recur.layers.compose: a = U x + b + ]]；同一层的结点合成一次乘法，见 [[recur.layers.tree.Forest]]。
树的形状或由数据给出（句法树），或与数据无关：`--structure balanced`。
"""

# %%
from recur.layers import Forest, Recursive
from recur.text import structure_of

for tau in (8, 64, 512):
    depth = {kind: len(Forest.of([structure_of(kind, tau)]).levels) - 1 for kind in ("left", "balanced")}
    print(f"τ = {tau:3}: as a chain {depth['left']:3} deep, balanced {depth['balanced']}")
    assert 2 ** depth["balanced"] == tau

forest = Forest.of([structure_of("left", 5), structure_of("balanced", 8)])  # two trees in one pass
(h,) = Recursive("net", 3, 4)(torch.randn(13, 3), forest)
print("a state for each node:", tuple(h.shape))

# %% [markdown] lang="en"
r"""
On real trees: `recur train trees.txt --task tree --compose tree-lstm`.

## 10.7 The challenge of long-term dependencies

Without input and nonlinearity the state is a power of one matrix, $h^{(t)} = W^t h^{(0)} = Q \Lambda^t Q^{-1} h^{(0)}$ (with an orthogonal $Q$, $Q^{-1} = Q^\top$): [[recur.reference.linear.free_state: Q @]]. Eigenvalues below 1 die out, those above 1
explode, forward and back: [[recur.probes.lab.gradients.exploding]].
"""

# %% [markdown] lang="zh"
r"""
在真实的句法树上：`recur train trees.txt --task tree --compose tree-lstm`。

## 10.7 长期依赖的挑战

没有输入和非线性时，状态就是同一个矩阵的幂：$h^{(t)} = W^t h^{(0)} = Q \Lambda^t Q^{-1} h^{(0)}$（$Q$ 正交时 $Q^{-1} = Q^\top$），见 [[recur.reference.linear.free_state: Q @]]。
小于 1 的特征值趋于 0，大于 1 的特征值爆炸，前向如此，反向亦然：[[recur.probes.lab.gradients.exploding]]。
"""

# %%
from recur.reference import linear

S = draw.normal(size=(4, 4))
W = (S + S.T) / 2  # symmetric: real eigenvalues, orthogonal Q
W *= 1.1 / abs(np.linalg.eigvalsh(W)).max()
h = h0 = draw.normal(size=(4, 1))
for _ in range(30):
    h = W @ h
print("eigenvalues", np.linalg.eigvalsh(W).round(3), " to the 30th", (np.linalg.eigvalsh(W) ** 30).round(5))
print(f"30 steps, or Q Λ³⁰ Qᵀ: {abs(h - linear.free_state(W, h0, 30)).max():.0e} apart")
assert np.allclose(h, linear.free_state(W, h0, 30))

# %%
from recur.probes import lab

experiment = lab.exploding()
print(experiment.paragraph)
experiment.figure

# %% [markdown] lang="en"
r"""
The book's aside: a product of *different* weights could be given the right variance, $v = \sqrt[n]{v^*}$ each; one shared weight cannot. [[recur.probes.lab.variance.variance]] (`recur lab variance`) measures both.
"""

# %% [markdown] lang="zh"
r"""
书中顺带提到：若每一步用*不同*的权重，可以把每个的方差取为 $v = \sqrt[n]{v^*}$，使乘积的方差恰为 $v^*$；而共享的同一个权重做不到。[[recur.probes.lab.variance.variance]]（`recur lab variance`）对两者都作了测量：
"""

# %%
experiment = lab.variance()
print(experiment.paragraph)
experiment.figure

# %% [markdown] lang="en"
r"""
Even where nothing explodes, a long dependency's share of the gradient is exponentially smaller than a short one's. What the first note leaves out, the book's sections 10.8 to 10.12, is here too:

| section | here |
| --- | --- |
| 10.8 echo state networks | $W$ drawn with a radius and left alone: `init=` and `requires_grad_(False)`; the spectrum by [[recur.probes.spectrum.spectrum_of]] |
| 10.9 leaky units, several time scales | [[recur.cells.leaky.Leaky]]; skip connections: [[recur.layers.options.Connections]] |
| 10.10 LSTM and other gated networks | [[recur.cells.lstm.LSTM.step: c = f]], [note 4](4-lstm.md); all cells: [cells](../cells.md) |
| 10.11 clipping, regularised gradients | [note 5](5-dive-into-deep-learning.md); clipping while the gradient is carried: [[recur.bptt.BPTT]] |
| 10.12 explicit memory | attention over a memory, as above |
"""

# %% [markdown] lang="zh"
r"""
即使什么都不爆炸，长程依赖在梯度中所占的份额也比短程的小若干个数量级。第一篇笔记略去的 10.8 至 10.12 节，这里同样有对应：

| 节 | 在这里 |
| --- | --- |
| 10.8 回声状态网络 | 按谱半径抽取 $W$ 后不再训练：`init=` 加 `requires_grad_(False)`；谱由 [[recur.probes.spectrum.spectrum_of]] 给出 |
| 10.9 渗漏单元与多时间尺度 | [[recur.cells.leaky.Leaky]]；跳跃连接：[[recur.layers.options.Connections]] |
| 10.10 LSTM 与其他门控网络 | [[recur.cells.lstm.LSTM.step: c = f]]，见[笔记四](4-lstm.md)；全部单元见[单元](../cells.md) |
| 10.11 梯度截断与正则化 | [笔记五](5-dive-into-deep-learning.md)；在梯度传播途中截断：[[recur.bptt.BPTT]] |
| 10.12 外显记忆 | 对记忆的注意力，如上 |
"""

# %%
from recur.layers import Init
from recur.probes import Subject
from recur.probes.flow import flow

torch.manual_seed(0)
for cell in ("elman", "leaky", "lstm"):
    init = Init("orthogonal", forget_bias=2.0) if cell == "lstm" else Init("orthogonal")
    for name, found in flow(Subject.of(Recurrent(cell, 4, 32, init=init), torch.randn(8, 60, 4))).items():
        print(f"{cell:6} {name}: gradient × {found.decay:.3f} a step, 1 % is left after {found.memory} steps")
