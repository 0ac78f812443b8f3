// The names of the views, for the menu and their titles, and the line below each.

import { words } from "./words.js";

words({
  en: {
    instead_write: "It answers inputs and writes no text on:", instead_predict: "It is a language model, which writes on:",
    instead_see: "Its network carries no state along time that could be drawn over a text. What it makes of an input is here:",
    instead_gradients: "How far its gradients reach along time is measured by X-ray:",
    instead_unfold: "What it is made of is told by X-ray, and what it answers here:",
    view_runs: "Runs",
    lead_runs: "Compare curves; a run that is training is drawn as it goes. Dashed lines are the plain models to beat. Tasks have "
      + "charts of their own.",
    view_train: "Train",
    lead_train: "Paste a text or a table, or choose a file: the task is recognised, the rest has defaults. A training goes on when "
      + "this page is closed; others wait their turn.",
    view_write: "Write",
    lead_write: "Type and see the next tokens; pick one to take that branch, or let the model go on.",
    view_predict: "Predict",
    lead_predict: "Give the model an input of its own task and see what it makes of it, and where it errs.",
    view_see: "See",
    lead_see: "What the units do while the network reads: one of them over the text, all of them over time, and places with a similar state.",
    view_gradients: "Gradients",
    lead_gradients: "What a loss teaches the weights, step by step back through time: cut it, truncate it, rescale W, and see what is left.",
    view_xray: "X-ray",
    lead_xray: "What a person would say of this run, with the measured reason and what to try; then every probe.",
    view_step: "Step",
    lead_step: "One step of a recurrent network with every number in view: forward, then back. Change any number, and all "
      + "that follows from it changes with it.",
    view_unfold: "Unfold",
    lead_unfold: "The network unrolled along time, with the shape of every part. U is the input matrix, W the state "
      + "matrix, V the output matrix, K the size of the vocabulary.",
    view_labs: "Labs",
    lead_labs: "The textbook's arguments as experiments: move a number, and it is measured again.",
  },
  zh: {
    instead_write: "它不续写文字，而是回答输入：", instead_predict: "它是语言模型，续写文字：",
    instead_see: "它的网络不沿时间传递状态，没有可以沿文本画出的值。它怎样看一个输入，见：",
    instead_gradients: "它的梯度沿时间传到多远，由 X 光测量：", instead_unfold: "它由哪些部分组成，见 X 光；它怎样回答，见：",
    view_runs: "训练记录",
    lead_runs: "比较各次训练的曲线；正在训练的会随训练实时画出。虚线是要超过的简单模型。不同任务分开画图。",
    view_train: "训练",
    lead_train: "粘贴文本或表格，或者选择文件：任务会自动识别，其余都有默认值。关闭本页后训练会继续；其他训练排队等候。",
    view_write: "续写",
    lead_write: "输入文字，看下一个词元的概率；点选一个词元即走上那条分支，或让模型续写下去。",
    view_predict: "预测",
    lead_predict: "给模型一个它自己任务的输入，看它得出什么，以及它在哪里出错。",
    view_see: "观察",
    lead_see: "网络阅读时各单元在做什么：一个单元沿文本的值，全部单元沿时间的值，以及状态相似的地方。",
    view_gradients: "梯度",
    lead_gradients: "一个损失沿时间一步步往回教给权重什么：切断它、截断它、缩放 W，看还剩多少。",
    view_xray: "X 光",
    lead_xray: "像一位行家那样评价这次训练，给出测得的理由和可以尝试的办法；然后是每一项测量。",
    view_step: "逐步",
    lead_step: "循环网络的一步，每个数都看得见：先前向，再反向。改动任何一个数，由它算出的数都会随之改变。",
    view_unfold: "展开",
    lead_unfold: "沿时间展开的网络，以及每一部分的形状。U 是输入矩阵，W 是状态矩阵，V 是输出矩阵，K 是词表大小。",
    view_labs: "实验",
    lead_labs: "把教科书的论证做成实验：移动一个数，立刻重新测量。",
  },
});
