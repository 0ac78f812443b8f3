// The words of See.

import { words } from "./words.js";

words({
  en: {
    features: "Features that units follow", similar: "Similar states in this text", similar_training: "Similar states in the training text",
    "none similar": "No similar state.", "no training text": "What the run learned from is not on this machine.",
    searched: "Searched: the first {n} tokens of it.",
    drag_hint: "Drag over the text, or move with the arrow keys, extend with Shift, and press Enter.", colour: "colour by",
    units_time: "All units × time", lead_map: "A row a unit, a column a step; click a row to see it over the text.",
    map_label: "{units} units at {steps} steps, coloured by their value; arrow keys move", map_about: "unit {unit} after {token}: {value}", first_units: "the first {n} of {all} units",
  },
  zh: {
    features: "各单元跟踪的特征", similar: "本文中相似的状态", similar_training: "训练文本中相似的状态",
    "none similar": "没有相似的状态。", "no training text": "训练所用的文本不在这台机器上。",
    searched: "搜索了它开头的 {n} 个词元。",
    drag_hint: "在文本上拖选，或用方向键移动、Shift 加方向键选择、回车查找。", backward: "反向", input: "输入",
    colour: "着色依据", position: "位置", column: "列", "line length": "行长", brackets: "括号", quotes: "引号",
    units_time: "全部单元 × 时间", lead_map: "一行是一个单元，一列是一步；点击一行，看它沿文本的值。",
    map_label: "{units} 个单元在 {steps} 步的值，以颜色表示；可用方向键移动", map_about: "单元 {unit} 在 {token} 之后：{value}", first_units: "共 {all} 个单元，显示前 {n} 个",
  },
});
