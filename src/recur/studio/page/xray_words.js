// The words of X-ray.

import { words } from "./words.js";

words({
  en: {
    xray_measuring: "Measuring; this takes some seconds…", xray_drawing: "Drawing the report…", xray_report: "Report on {name}",
    level_ok: "ok", level_warning: "warning", level_fault: "fault", level_unknown: "not known",
  },
  zh: {
    xray_measuring: "正在测量，需要几秒钟……", xray_drawing: "正在绘制报告……", xray_report: "{name} 的报告",
    level_ok: "正常", level_warning: "警告", level_fault: "毛病", level_unknown: "未知",
  },
});
