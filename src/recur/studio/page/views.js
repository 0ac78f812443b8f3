// The views, in the order of the menu. A view is a line here:
//   name    in the address; its words are view_NAME (the menu and the title) and lead_NAME (the line below the title)
//   group   of the menu
//   reads   which runs it can open; without it the view needs no run
// Its module, NAME.js, is fetched when the view is opened for the first time. It exports a function of that name, which fills an
// element, NAME(body, { runs, run, name, params }), and may return a function that is called on leaving.

import "./views_words.js";

// Tasks whose networks read what they are given along time; trees, grids and tables carry nothing along it.
const ALONG_TIME = ["language", "classify", "tag", "seq2seq", "forecast", "adding", "copy"];
const language = (run) => run.task === "language";

export const VIEWS = [
  { name: "runs", group: "training" },
  { name: "train", group: "training" },
  { name: "write", group: "model", reads: language },
  { name: "predict", group: "model", reads: (run) => !language(run) },
  { name: "see", group: "model", reads: (run) => ALONG_TIME.includes(run.task) },
  { name: "gradients", group: "model", reads: language },
  { name: "xray", group: "model", reads: () => true },
  { name: "step", group: "learning" },
  { name: "unfold", group: "learning" },
  { name: "labs", group: "learning" },
];

// The first view in the menu that opens a run.
export const viewFor = (run) => VIEWS.find((view) => view.reads?.(run));

// The function that fills a view.
export const opener = async (view) => (await import(`./${view.name}.js`))[view.name];
