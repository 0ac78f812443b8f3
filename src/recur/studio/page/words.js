// The page's words in both languages. A sentence is looked up by its English name.

export const languages = { en: "English", zh: "中文" };

const zh = {
  Runs: "训练", Generate: "生成", Activations: "激活", Gradients: "梯度", Unfold: "展开",
  light: "浅色", dark: "深色", run: "运行", task: "任务", text: "文本", layer: "层", unit: "单元", state: "状态", gate: "门",
  lead_runs: "比较各次训练的曲线；正在训练的会实时更新。虚线是同一指标的基线。",
  lead_generate: "输入文字，看下一个词元的概率；点选一个词元即走上那条分支，或让模型继续生成。",
  lead_activations: "用一个单元或门的激活值给文本着色。拖选一段，找出状态相似的地方。",
  lead_gradients: "最后一个词元的损失对每一时刻状态的梯度范数：梯度传了多远，截断在哪里把它切断。",
  lead_unfold: "沿时间展开的网络，以及每一部分的形状。U 是输入矩阵，W 是状态矩阵，V 是输出矩阵，K 是词表大小。",
  other_task: "{name} 是任务 {task} 的训练；这个视图只打开语言模型（任务 language）。",
  no_language: "这里还没有语言模型（任务 language）；这个视图只打开语言模型。试试：",
  name: "名称", cell: "单元类型", size: "大小", step: "步数", best: "最佳", baseline: "基线", live: "训练中",
  metric: "指标", samples: "各时刻的样本", "no samples": "这次训练没有保存样本。", compare: "比较", error: "无法读取",
  empty: "这里还没有训练。试试：", temperature: "温度", "top-k": "top-k", "top-p": "top-p", all: "全部",
  generate: "继续生成", stop: "停止", length: "长度", "next token": "下一个词元", "token before": "前一个词元", entropy: "熵",
  bars_hint: "浅色：模型的概率；深色：经温度、top-k、top-p 之后。", features: "各单元跟踪的特征", similar: "相似的状态", "none similar": "没有相似的状态。",
  drag_hint: "在文本上拖选，或用方向键移动、Shift 加方向键选择、回车查找。", window: "截断长度 τ", full: "完整",
  decay: "每步衰减", memory: "剩 1 % 时的步数", beyond: "超出文本", clips: "梯度裁剪", "no clips": "没有训练记录。",
  steps_back: "离末尾的步数", pattern: "结构", weights: "权重", parameters: "参数",
  "one output per step": "每步一个输出（语言模型）", "output fed back": "输出反馈到下一步",
  "one output at the end": "只在末尾输出", bidirectional: "双向", "encoder–decoder": "编码器–解码器", deep: "深层",
  nats: "奈特", colour: "着色依据", position: "位置", column: "列", "line length": "行长", brackets: "括号", quotes: "引号",
  predicts: "预测", terms: "W 与 U 的梯度的各项", largest: "最大项在末尾前几步", share: "占各项之和", needed: "末尾几步给出 90 %",
  lead_terms: "∂L/∂W 是每一步一项之和 Σ δ_t h_{t−1}ᵀ。每格是这一步的那一项的范数：W 从哪些步学到东西。",
};

const en = {
  lead_runs: "Compare curves; a run that is training is updated live. Dashed lines are baselines of the same metric.",
  lead_generate: "Type and see the next tokens; pick one to take that branch, or let the model generate.",
  lead_activations: "Text coloured by one unit or gate. Drag over a span to find places with a similar state.",
  lead_gradients: "The gradient of the last token's loss with respect to the state at every time: how far it flows "
    + "back, and where truncation cuts it.",
  lead_unfold: "The network unrolled along time, with the shape of every part. U is the input matrix, W the state "
    + "matrix, V the output matrix, K the size of the vocabulary.",
  other_task: "{name} is a run of the task {task}; this view reads language models (the task language).",
  no_language: "There is no language model here yet, and this view reads nothing else. Try:",
  empty: "There is no run here yet. Try:", "no samples": "This run kept no samples.", error: "cannot be read",
  bars_hint: "Light: probability. Dark: after temperature, top-k and top-p.",
  features: "Features that units follow", similar: "Similar states", "none similar": "No similar state.",
  drag_hint: "Drag over the text, or move with the arrow keys, extend with Shift, and press Enter.",
  window: "truncation τ", decay: "decay per step", memory: "steps until 1 % is left", beyond: "beyond the text",
  clips: "Gradient clipping", "no clips": "No record of training.", samples: "Samples over time",
  terms: "Terms of the gradient of W and U", largest: "largest term, steps back", share: "of all terms",
  needed: "last steps that give 90 %",
  lead_terms: "∂L/∂W is a sum with one term a step, Σ δ_t h_{t−1}ᵀ. A cell is the norm of its step's term: which steps W "
    + "learns from.",
  steps_back: "steps from the end", "next token": "Next token", "token before": "Token before", colour: "colour by",
};

// The parts of a metric's name, as in valid_sequence_error_rate.
const metrics = {
  en: {
    valid: "validation", train: "training", mse: "MSE", mase: "MASE", smape: "sMAPE", macro_f1: "macro F1",
    gap: "free-running gap", free_loss: "free-running loss", pinball: "pinball loss", grad_norm: "gradient norm",
    clipped: "share clipped", rate: "learning rate", predictions_per_second: "predictions per second",
  },
  zh: {
    valid: "验证", train: "训练", loss: "损失", perplexity: "困惑度", error: "错误率", accuracy: "准确率", mse: "均方误差",
    mase: "MASE", smape: "sMAPE", macro_f1: "宏平均 F1", sequence_error_rate: "序列错误率", word_error_rate: "词错误率", symbol_error_rate: "符号错误率",
    bits_per_character: "每字符比特数", gap: "自由运行差距", free_loss: "自由运行损失", pinball: "分位数损失",
    coverage: "区间覆盖率", node_accuracy: "结点准确率", binary_accuracy: "二分类准确率", grad_norm: "梯度范数",
    clipped: "被裁剪的比例", rate: "学习率", predictions_per_second: "每秒预测数",
  },
};

let current = localStorage.getItem("language") || (navigator.language.startsWith("zh") ? "zh" : "en");

export const language = () => current;

export function setLanguage(code) {
  current = code;
  localStorage.setItem("language", code);
  document.documentElement.lang = code;
}

export const t = (name, values = {}) => Object.entries(values).reduce(
  (text, [key, value]) => text.replace(`{${key}}`, value), (current === "zh" ? zh[name] : en[name]) ?? name);

// A metric by its name in metrics.jsonl: valid_error is "validation error".
export function metricLabel(name) {
  const [, part, rest] = /^(?:(valid|train)_)?(.+)$/.exec(name);
  const words = metrics[current];
  const label = words[rest] ?? rest.replaceAll("_", " ");
  const space = current === "zh" && !/^[a-z]/i.test(label) ? "" : " ";
  return part ? words[part] + space + label : label;
}
