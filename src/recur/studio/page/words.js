// The page's words in both languages. A view brings its own (NAME_words.js); those here are the frame's, and what several
// views say. A sentence is looked up by its English name; without an entry of its own in English it is that name.

export const languages = { en: "English", zh: "中文" };

const catalogue = { en: {}, zh: {} };

// Words of a view: { en: { name: sentence }, zh: { name: sentence } }. One name has one meaning in the whole page.
export function words(added) {
  for (const [code, sentences] of Object.entries(added)) for (const [name, sentence] of Object.entries(sentences)) {
    if ((catalogue[code][name] ?? sentence) !== sentence) throw new Error(`two meanings of ${name} in ${code}`);
    catalogue[code][name] = sentence;
  }
}

words({
  en: {
    skip: "Skip to content", group_training: "training", group_model: "one run", group_learning: "learning",
    other_task: "{name} is a run of the task {task}, which this view does not read. ",
    no_run_fits: "There is no run here yet that this view reads. Try:",
    empty: "There is no run here yet. Try:", error: "cannot be read",
  },
  zh: {
    skip: "跳到正文", views: "视图", group_training: "训练", group_model: "单次训练", group_learning: "学习",
    light: "浅色", dark: "深色", run: "训练记录", task: "任务", text: "文本", layer: "层", unit: "单元", state: "状态",
    gate: "门", step: "步数", all: "全部", full: "完整", parameters: "参数", error: "无法读取",
    other_task: "{name} 是任务 {task} 的训练记录，这个视图不读它。",
    no_run_fits: "这里还没有这个视图能读的训练记录。试试：",
    empty: "这里还没有训练记录。试试：",
  },
});

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
  (text, [key, value]) => text.replaceAll(`{${key}}`, value), catalogue[current][name] ?? name);

// Names that a language has sentences for.
export const names = (code) => Object.keys(catalogue[code]);

// A metric by its name in metrics.jsonl: valid_error is "validation error".
export function metricLabel(name) {
  const [, part, rest] = /^(?:(valid|train)_)?(.+)$/.exec(name);
  const known = metrics[current];
  const label = known[rest] ?? rest.replaceAll("_", " ");
  const space = current === "zh" && !/^[a-z]/i.test(label) ? "" : " ";
  return part ? known[part] + space + label : label;
}
