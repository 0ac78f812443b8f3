// The words of Write.

import { words } from "./words.js";

words({
  en: {
    view_write: "Write",
    lead_write: "Type and see the next tokens; pick one to take that branch, or let the model go on.",
    bars_hint: "Light: probability. Dark: after temperature, top-k and top-p.",
    "next token": "Next token", "token before": "Token before", generate: "go on",
  },
  zh: {
    view_write: "续写",
    lead_write: "输入文字，看下一个词元的概率；点选一个词元即走上那条分支，或让模型续写下去。",
    bars_hint: "浅色：模型的概率；深色：经温度、top-k、top-p 之后。",
    temperature: "温度", "top-k": "top-k", "top-p": "top-p", generate: "续写", stop: "停止", length: "长度",
    "next token": "下一个词元", "token before": "前一个词元", entropy: "熵", nats: "奈特",
  },
});
