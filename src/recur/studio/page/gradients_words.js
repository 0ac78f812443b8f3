// The words of Gradients.

import { words } from "./words.js";

words({
  en: {
    view_gradients: "Gradients",
    lead_gradients: "The gradient of the last token's loss with respect to the state at every time: how far it flows "
      + "back, and where truncation cuts it.",
    window: "truncation τ", decay: "decay per step", memory: "steps until 1 % is left", beyond: "beyond the text",
    clips: "Gradient clipping", "no clips": "No record of training.",
    terms: "Terms of the gradient of W and U", largest: "largest term, steps back", share: "of all terms",
    needed: "last steps that give 90 %", steps_back: "steps from the end",
    lead_terms: "∂L/∂W is a sum with one term a step, Σ δ_t h_{t−1}ᵀ. A cell is the norm of its step's term: which steps W "
      + "learns from.",
  },
  zh: {
    view_gradients: "梯度",
    lead_gradients: "最后一个词元的损失对每一时刻状态的梯度范数：梯度传了多远，截断在哪里把它切断。",
    window: "截断长度 τ", decay: "每步衰减", memory: "剩 1 % 时的步数", beyond: "超出文本",
    clips: "梯度裁剪", "no clips": "没有训练记录。", predicts: "预测",
    terms: "W 与 U 的梯度的各项", largest: "最大项在末尾前几步", share: "占各项之和", needed: "末尾几步给出 90 %",
    steps_back: "离末尾的步数",
    lead_terms: "∂L/∂W 是每一步一项之和 Σ δ_t h_{t−1}ᵀ。每格是这一步的那一项的范数：W 从哪些步学到东西。",
  },
});
