// The words of Unfold.

import { words } from "./words.js";

words({
  en: {
    view_unfold: "Unfold",
    lead_unfold: "The network unrolled along time, with the shape of every part. U is the input matrix, W the state "
      + "matrix, V the output matrix, K the size of the vocabulary.",
  },
  zh: {
    view_unfold: "展开",
    lead_unfold: "沿时间展开的网络，以及每一部分的形状。U 是输入矩阵，W 是状态矩阵，V 是输出矩阵，K 是词表大小。",
    pattern: "结构", weights: "权重",
    "one output per step": "每步一个输出（语言模型）", "output fed back": "输出反馈到下一步",
    "one output at the end": "只在末尾输出", bidirectional: "双向", "encoder–decoder": "编码器–解码器", deep: "深层",
  },
});
