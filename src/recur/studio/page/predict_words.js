// The words of Predict.

import { words } from "./words.js";

words({
  en: {
    reading_input: "reading it …", input: "Input", prediction: "Prediction", another: "another example", draw_one: "draw a line", own_examples: "from the run's own validation part",
    no_examples: "the run's files are not here: made of its vocabulary", wanted: "It should say: {target}",
    unknown_inputs: "Not in the vocabulary, read as <unk>: {tokens}",
    takes_classes: "A text to classify.", takes_tags: "Words between spaces, each to be tagged.", takes_pairs: "A source to write from.",
    takes_tree: "A tree in brackets; its own labels are not looked at.", takes_series: "A series as a table: what comes next?",
    takes_image: "Pixels: click one to paint it.", takes_numbers: "A sequence of numbers, a step a line.", takes_labels: "A label to write a line of.", takes_line: "A line as the task has it.",
    along: "How sure it is of “{output}” after each token", next_best: "Next best", was_cut: "did not end by itself", no_attention: "This network has no attention: all it knows of the source is one state.",
    attention: "Attention", attention_about: "A row is a symbol written, a column a symbol of the source: the darker, the more it looked there.",
    empty_output: "nothing", coloured_tree: "the tree, a colour a class", history: "so far", came: "what came", naive: "naive: as {season} steps before", naive_short: "naive", median: "median",
    band: "{low} … {high} %", forecast: "Forecast", judged: "Mean error here: {own}; the naive forecast's {naive}.", pixel: "row {r}, column {c}: {v}", sum_is: "the sum is {sum}", symbols_right: "{right} of 10 right",
    confusion: "Confusion table", lead_confusion: "Of the validation part. A row is the right class, a column what the model says; click a number for its examples.",
    cell_label: "{right} said to be {said}: {count}", cell_right: "{right}, and said so: {count}", cell_wrong: "{right} taken for {said}: {count}", found_share: "found",
  },
  zh: {
    reading_input: "正在读……", input: "输入", prediction: "预测", another: "换一个例子", draw_one: "写一行", own_examples: "取自这次训练自己的验证集",
    no_examples: "训练所用的文件不在这里：用它的词表拼成", wanted: "应为：{target}",
    unknown_inputs: "不在词表中，读作 <unk>：{tokens}", label: "标签",
    takes_classes: "要分类的文本。", takes_tags: "以空格隔开的词，逐个标注。", takes_pairs: "据以写出结果的源文本。",
    takes_tree: "带括号的树；树上原有的标签不看。", takes_series: "表格形式的序列：接下来是什么？",
    takes_image: "像素：点击即涂改。", takes_numbers: "数字序列，每行一步。", takes_labels: "按标签写一行。", takes_line: "按任务格式的一行。",
    along: "读完每个词元后对“{output}”有多确信", next_best: "其次", was_cut: "没有自行结束", no_attention: "这个网络没有注意力：它对源文本的了解只有一个状态。",
    attention: "注意力", attention_about: "一行是写出的一个符号，一列是源中的一个符号：越深，看得越多。",
    empty_output: "空", coloured_tree: "树，每类一种颜色", history: "至今", came: "实际值", naive: "朴素预测：同 {season} 步之前", naive_short: "朴素", median: "中位数",
    band: "{low} … {high} %", forecast: "预测曲线", judged: "这里的平均误差：{own}；朴素预测为 {naive}。", pixel: "第 {r} 行第 {c} 列：{v}", sum_is: "和为 {sum}", symbols_right: "10 个中对了 {right} 个",
    confusion: "混淆矩阵", lead_confusion: "在验证集上。行是正确的类，列是模型的判断；点击数字看其中的例子。",
    cell_label: "{right} 判为 {said}：{count}", cell_right: "{right}，判断正确：{count}", cell_wrong: "{right} 被当作 {said}：{count}", found_share: "找出",
  },
});
