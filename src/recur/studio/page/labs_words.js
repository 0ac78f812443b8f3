// The words of Labs.

import { words } from "./words.js";

words({
  en: {
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
  },
  zh: {
    experiment: "实验项目", lab_busy: "正在测量……",
    name_vanishing: "梯度消失", name_exploding: "梯度爆炸", "name_forget-gate": "遗忘门", name_clipping: "梯度裁剪",
    name_variance: "方差", name_truncation: "截断", name_parameters: "参数共享",
    lab_vanishing: "许多小斜率的乘积：用 σ、用 tanh、沿 LSTM 的记忆，梯度各怎样下降。",
    lab_exploding: "W 的幂：特征值在单位圆内、圆上和圆外。",
    "lab_forget-gate": "遗忘门就是梯度沿 LSTM 记忆的衰减：从关到开。",
    lab_clipping: "悬崖边的梯度下降，有裁剪和没有裁剪。",
    lab_variance: "所有步共用一个权重，对比每步一个权重、方差按步数选定。",
    lab_truncation: "当依赖比反向传播的窗口更长时能学到什么。要训练六个网络：请等半分钟。",
    lab_parameters: "按所跨的词元数，一张表和一个网络各有多少个数。",
    set_T: "步数 T", set_H: "单元数 H", set_seed: "随机种子", set_theta: "界限 θ", set_steps: "步数 n", set_target: "方差 v*", set_lag: "间隔", set_k: "词元数 k", set_tau: "跨度 τ", set_hidden: "单元数 H",
  },
});
