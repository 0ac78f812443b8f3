// The words of Runs.

import { words } from "./words.js";

words({
  en: {
    view_runs: "Runs",
    lead_runs: "Compare curves; a run that is training is updated live. Dashed lines are baselines of the same metric.",
    "no samples": "This run kept no samples.", samples: "Samples over time",
  },
  zh: {
    view_runs: "训练记录",
    lead_runs: "比较各次训练的曲线；正在训练的会实时更新。虚线是同一指标的基线。",
    name: "名称", cell: "单元类型", size: "大小", best: "最佳", baseline: "基线", live: "训练中", metric: "指标",
    samples: "各时刻的样本", "no samples": "这次训练没有保存样本。", compare: "比较",
  },
});
