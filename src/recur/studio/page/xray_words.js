// The words of X-ray.

import { words } from "./words.js";

words({
  en: {
    view_xray: "X-ray", lead_xray: "What a person would say of this run, with the measured reason and what to try; then every probe.",
    xray_measuring: "Measuring; this takes some seconds…", xray_drawing: "Drawing the report…", xray_report: "Report on {name}",
    level_ok: "ok", level_warning: "warning", level_fault: "fault", level_unknown: "not known",
  },
  zh: {
    view_xray: "X 光", lead_xray: "像一位行家那样评价这次训练，给出测得的理由和可以尝试的办法；然后是每一项测量。",
    xray_measuring: "正在测量，需要几秒钟……", xray_drawing: "正在绘制报告……", xray_report: "{name} 的报告",
    level_ok: "正常", level_warning: "警告", level_fault: "毛病", level_unknown: "未知",
  },
});
