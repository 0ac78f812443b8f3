// The words of curves.

import { words } from "./words.js";

words({
  en: {
    curves_hint: "Arrow keys move the crosshair.", curves_none: "nothing measured yet",
    axis_tokens: "tokens", axis_time: "training time",
  },
  zh: {
    curves_hint: "用方向键移动十字线。", curves_none: "还没有测量值",
    axis_tokens: "词元数", axis_time: "训练时间",
  },
});
