// The words of Unfold.

import { words } from "./words.js";

words({
  en: {
  },
  zh: {
    pattern: "结构", weights: "权重",
    "one output per step": "每步一个输出（语言模型）", "output fed back": "输出反馈到下一步",
    "one output at the end": "只在末尾输出", bidirectional: "双向", "encoder–decoder": "编码器–解码器", deep: "深层",
  },
});
