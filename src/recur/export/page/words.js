// Texts of the page in English and Chinese, by key. Every key exists in both.

const WORDS = {
  en: {
    language_name: "English", skip: "Skip to content", made: "Everything happens in this page: no request leaves it.",
    weights_int8: "8-bit weights", weights_float32: "32-bit weights", size: "{size} in one file",
    text: "Text", next: "Next token", before: "Token before", write: "Write on", stop: "Stop", clear: "Clear",
    temperature: "Temperature", topp: "Top-p", length: "Length", seed: "Seed", label: "Label", beam: "Beam width",
    placeholder_language: "Type how it begins …", placeholder_backward: "Type how it ends …", placeholder_line: "Type how the line begins, or nothing …",
    placeholder_classify: "Type or paste a text …", placeholder_tag: "Type a sentence, words between spaces …", placeholder_pairs: "Type a source …",
    placeholder_numbers: "Paste rows of numbers, one step a line …", placeholder_forecast: "Paste numbers, oldest first, or a CSV …",
    lead_language: "Type, and see what the model expects next. Pick a token to take it, or let it write.",
    lead_conditional: "Choose a label and type how a line begins. Pick a token to take it, or let the model write.",
    lead_classify: "Type a text, and see which class the model takes it for.",
    lead_tag: "Type a sentence, and see the tag of every word. Pick a word to see what else it could be.",
    lead_pairs: "Type a source, and see what the model makes of it.",
    lead_forecast: "Paste a series, oldest value first, and see how it goes on: the median, and a band around it.",
    lead_numbers: "Paste a sequence, one step a line and one number a column, and see what the model makes of it.",
    surprise: "What surprised it", surprise_lead: "Each token by how unlikely it was: {bits} bits a token, perplexity {perplexity}.",
    entropy: "{bits} bits of doubt", speed: "{rate} tokens a second", reading: "Reading … {share}", ended: "The line ends here.", cut: "Cut at the longest length.",
    unknown: "Not in the vocabulary:", unknown_read: "read as <unk>.", empty: "Nothing to read yet.",
    classes: "Classes", more_classes: "and {count} more, {share} together", words: "Tags", word_picked: "“{word}”", legend: "Tags in this text",
    output: "Output", alternatives: "Alternatives", attention: "Where it looked", attention_lead: "Each row is a symbol that was written, each column one of the source; the stronger the colour, the more attention.",
    score: "log P {score}", lines: "Lines", draw_lines: "Draw ten lines", series: "Series", forecast: "Forecast", example: "Example", table: "As a table",
    step: "Step", median: "Median", band: "{low} to {high} %", values_read: "{count} values read", too_few: "{count} values are too few: {least} are needed.",
    no_future: "{name} is known {count} steps ahead, and the forecast needs {horizon}: add rows with its values.",
    not_number: "Line {line}: “{value}” is no number.", columns_wrong: "Line {line} has {count} numbers, and {least} are expected.", rows_read: "{count} steps read",
    result: "Result", probability: "Probability",
    kind_language: "Language model", kind_conditional: "Language model with labels", kind_pairs: "Encoder–decoder", kind_classifier: "Classifier", kind_tagger: "Tagger",
    kind_forecaster: "Forecaster", kind_numbers: "Sequences of numbers", kind_copy: "Recall",
    lead_copy: "Type {count} digits from 0 to {most}: the model reads them, waits for {length} steps, and says what it remembers.", placeholder_copy: "3 1 4 1 5 7 2 6 5 3",
    needs_dates: "This model reads the calendar: the first column must be dates.", not_positive: "This model reads logarithms: all values must be above 0.",
    failed: "This browser cannot run the model: {why}", other_columns: "The CSV needs the columns {names}.",
  },
  zh: {
    language_name: "中文", skip: "跳到内容", made: "一切都在本页内完成，不发出任何网络请求。",
    weights_int8: "8 位权重", weights_float32: "32 位权重", size: "单个文件 {size}",
    text: "文本", next: "下一个词元", before: "前一个词元", write: "继续写", stop: "停止", clear: "清空",
    temperature: "温度", topp: "Top-p", length: "长度", seed: "种子", label: "标签", beam: "束宽",
    placeholder_language: "输入开头 …", placeholder_backward: "输入结尾 …", placeholder_line: "输入这一行的开头，也可以留空 …",
    placeholder_classify: "输入或粘贴一段文本 …", placeholder_tag: "输入一个句子，词之间用空格隔开 …", placeholder_pairs: "输入源序列 …",
    placeholder_numbers: "粘贴数值，每行一步 …", placeholder_forecast: "粘贴数值（旧的在前）或 CSV …",
    lead_language: "输入文字，看模型认为接下来是什么；点选一个词元，或让它继续写。",
    lead_conditional: "选择标签，输入一行的开头；点选一个词元，或让模型继续写。",
    lead_classify: "输入一段文本，看模型把它归为哪一类。",
    lead_tag: "输入一个句子，看每个词的标注；点选一个词，看它的其他可能。",
    lead_pairs: "输入源序列，看模型写出什么。",
    lead_forecast: "粘贴一个序列（旧值在前），看它如何延续：中位数及其区间。",
    lead_numbers: "粘贴一个序列，每行一步、每列一个数，看模型的判断。",
    surprise: "哪里让它意外", surprise_lead: "每个词元按其意外程度着色：每词元 {bits} 比特，困惑度 {perplexity}。",
    entropy: "不确定性 {bits} 比特", speed: "每秒 {rate} 个词元", reading: "正在读 … {share}", ended: "这一行到此结束。", cut: "已达最大长度，截断。",
    unknown: "不在词表中：", unknown_read: "按 <unk> 读入。", empty: "还没有可读的内容。",
    classes: "类别", more_classes: "另有 {count} 类，合计 {share}", words: "标注", word_picked: "“{word}”", legend: "本文中的标注",
    output: "输出", alternatives: "其他候选", attention: "注意力", attention_lead: "每行是写出的一个符号，每列是源序列的一个符号；颜色越浓，注意力越大。",
    score: "log P {score}", lines: "各行", draw_lines: "抽取十行", series: "序列", forecast: "预测", example: "示例", table: "表格",
    step: "步", median: "中位数", band: "{low} 至 {high} %", values_read: "读入 {count} 个值", too_few: "只有 {count} 个值，至少需要 {least} 个。",
    no_future: "{name} 只给出了未来 {count} 步，预测需要 {horizon} 步：请补上这些行的取值。",
    not_number: "第 {line} 行：“{value}” 不是数。", columns_wrong: "第 {line} 行有 {count} 个数，应为 {least} 个。", rows_read: "读入 {count} 步",
    result: "结果", probability: "概率",
    kind_language: "语言模型", kind_conditional: "带标签的语言模型", kind_pairs: "编码器–解码器", kind_classifier: "分类器", kind_tagger: "序列标注",
    kind_forecaster: "预测模型", kind_numbers: "数值序列", kind_copy: "回忆",
    lead_copy: "输入 {count} 个 0 到 {most} 的数字：模型读入后等待 {length} 步，再说出它记住的内容。", placeholder_copy: "3 1 4 1 5 7 2 6 5 3",
    needs_dates: "该模型读取日历：第一列必须是日期。", not_positive: "该模型使用对数：所有值必须大于 0。",
    failed: "此浏览器无法运行该模型：{why}", other_columns: "CSV 需要这些列：{names}。",
  },
};

// Names of facts and metrics, as recur writes them.
const FACTS = {
  network: "网络", weights: "权重", tokens: "词元", classes: "类别", source: "源词表", target: "目标词表", characters: "字符", ngrams: "n 元组", columns: "列", known: "已知", past: "过去",
  features: "特征", numbers: "数值列", words: "词列", moves: "转移", labels: "标签", "loss in nats": "损失（奈特）", perplexity: "困惑度", accuracy: "准确率", error: "错误率", "macro F1": "宏平均 F1",
  "span F1": "片段 F1", "sequences wrong": "错误序列", "symbol error rate": "符号错误率", "word error rate": "词错误率", "mean squared error": "均方误差",
};

function factName(name) {
  const [, part, rest] = /^(valid )?(.*)$/.exec(name);
  if (current === "en") return part ? `validation ${rest}` : rest;
  return (part ? "验证" : "") + (Object.hasOwn(FACTS, rest) ? FACTS[rest] : rest);
}

let current = (navigator.language || "en").startsWith("zh") ? "zh" : "en";

// One pass with a function, so that placeholders and $& inside a value are not expanded.
const t = (name, values = {}) => WORDS[current][name].replace(/\{(\w+)\}/g, (found, key) => (Object.hasOwn(values, key) ? String(values[key]) : found));
