// The words of See.

import { words } from "./words.js";

words({
  en: {
    view_see: "See",
    lead_see: "Text coloured by one unit or gate. Drag over a span to find places with a similar state.",
    features: "Features that units follow", similar: "Similar states", "none similar": "No similar state.",
    drag_hint: "Drag over the text, or move with the arrow keys, extend with Shift, and press Enter.",
    colour: "colour by",
  },
  zh: {
    view_see: "观察",
    lead_see: "用一个单元或门的激活值给文本着色。拖选一段，找出状态相似的地方。",
    features: "各单元跟踪的特征", similar: "相似的状态", "none similar": "没有相似的状态。",
    drag_hint: "在文本上拖选，或用方向键移动、Shift 加方向键选择、回车查找。",
    colour: "着色依据", position: "位置", column: "列", "line length": "行长", brackets: "括号", quotes: "引号",
  },
});
