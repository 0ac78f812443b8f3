// The words of Runs.

import { language, words } from "./words.js";

words({
  en: {
    "no samples": "None of these runs kept samples.", samples: "Samples over time",
    runs_time: "time", runs_loss: "training loss", runs_changed: "changed", runs_filter: "filter by name, notes, options",
    runs_all: "draw these", runs_none: "draw none", runs_open: "not finished", runs_more: "{n} more",
    runs_pending: "{n} runs are being read …", runs_no_fit: "No run fits.", runs_axis: "over", runs_smoothing: "smoothing",
    runs_differences: "What they differ in", runs_two: "Choose two runs of one task, or more.", runs_same: "The options of {names} are the same.",
    runs_notes: "Notes", runs_notes_of: "Notes on {name}", runs_notes_hint: "what you want to remember of it", runs_saved: "kept",
    runs_empty: "There is no run here yet. Train one from this page, or type:",
  },
  zh: {
    name: "名称", cell: "单元类型", size: "大小", best: "最佳", baseline: "基线", live: "训练中", metric: "指标",
    samples: "各时刻的样本", "no samples": "这些训练没有保存样本。", compare: "比较",
    runs_time: "用时", runs_loss: "训练损失", runs_changed: "更新时间", runs_filter: "按名称、笔记、选项筛选",
    runs_all: "全部画出", runs_none: "全部取消", runs_open: "未完成", runs_more: "另外 {n} 个",
    runs_pending: "正在读取 {n} 个训练记录……", runs_no_fit: "没有符合条件的训练记录。", runs_axis: "横轴", runs_smoothing: "平滑",
    runs_differences: "选项的差别", runs_two: "请选择同一任务的两个或更多训练记录。", runs_same: "{names} 的选项相同。",
    runs_notes: "笔记", runs_notes_of: "{name} 的笔记", runs_notes_hint: "想记住的事情", runs_saved: "已保存",
    runs_empty: "这里还没有训练记录。可以在本页训练一个，或者输入：",
  },
});

// Plain models by their names in baselines.json, such as 6-gram or always good.
const PLAIN = [
  [/^(\d+)-grams? by class$/, "按类别的 $1 元语法"], [/^(\d+)-grams? by label$/, "按标签的 $1 元语法"], [/^(\d+)-grams?(, from the end)?$/, "$1 元语法"],
  [/^each word's most frequent tag$/, "每个词最常见的标签"], [/^CRF on words$/, "基于词的 CRF"], [/^always (.+)$/, "总是 $1"], [/^seasonal naive$/, "季节朴素"], [/^naive 2$/, "朴素 2"],
  [/^naive$/, "朴素"], [/^linear autoregression$/, "线性自回归"], [/^naive Bayes/, "朴素贝叶斯"], [/^TF-IDF logistic regression/, "TF-IDF 逻辑回归"],
  [/^copy$/, "照抄"], [/^look-up$/, "查表"], [/^dictionary$/, "词典"], [/^the most frequent sequence$/, "最常见的序列"],
  [/^the most frequent label, by length$/, "按长度最常见的标签"], [/^the most frequent class$/, "最常见的类别"], [/^the most frequent tag/, "最常见的标签"],
  [/^the mean$/, "平均值"], [/^linear$/, "线性模型"], [/^remembering nothing$/, "什么也不记"],
];

export function plainLabel(name) {
  const [pattern, chinese] = (language() === "zh" && PLAIN.find(([one]) => one.test(name))) || [];
  return pattern ? name.replace(pattern, chinese) : name;
}
