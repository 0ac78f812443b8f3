// The words of what a prediction hangs on.

import { words } from "./words.js";

words({
  en: {
    hangs_about_before: "The likeliest token before, {token} ({p} %), hangs on these: warm adds to its log-probability, cold takes "
      + "away (gradient × input).",
    hangs_on: "What this prediction hangs on", hangs_before: "everything earlier:",
    hangs_about: "The likeliest next token, {token} ({p} %), hangs on these: warm adds to its log-probability, cold takes "
      + "away (gradient × input).",
  },
  zh: {
    hangs_about_before: "最可能的前一个词元 {token}（{p} %）取决于这些词元：暖色提高它的对数概率，冷色降低（梯度 × 输入）。",
    hangs_on: "这个预测取决于什么", hangs_before: "更早的一切：",
    hangs_about: "最可能的下一个词元 {token}（{p} %）取决于这些词元：暖色提高它的对数概率，冷色降低（梯度 × 输入）。",
  },
});
