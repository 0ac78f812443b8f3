// The views, in the order of the menu. A view is a line here:
//   name    in the address; its words are view_NAME (the menu and the title) and lead_NAME (the line below the title)
//   group   of the menu
//   reads   which runs it can open; without it the view needs no run
//   open    fills an element: open(body, { runs, run, name, params }), and may return a function that is called on leaving

import { train } from "./train.js";
import { runs } from "./runs.js";
import { write } from "./write.js";
import { predict } from "./predict.js";
import { see } from "./see.js";
import { gradients } from "./gradients.js";
import { step } from "./step.js";
import { xray } from "./xray.js";
import { unfold } from "./unfold.js";
import { labs } from "./labs.js";

const language = (run) => run.task === "language";

export const VIEWS = [
  { name: "runs", group: "training", open: runs },
  { name: "train", group: "training", open: train },
  { name: "write", group: "model", reads: language, open: write },
  { name: "predict", group: "model", reads: (run) => !language(run), open: predict },
  { name: "see", group: "model", reads: (run) => ["language", "classify", "tag"].includes(run.task), open: see },
  { name: "gradients", group: "model", reads: language, open: gradients },
  { name: "xray", group: "model", reads: () => true, open: xray },
  { name: "step", group: "learning", open: step },
  { name: "unfold", group: "learning", reads: language, open: unfold },
  { name: "labs", group: "learning", open: labs },
];

// The first view in the menu that opens a run.
export const viewFor = (run) => VIEWS.find((view) => view.reads?.(run));
