// The words of Write.

import { words } from "./words.js";

words({
  en: {
    bars_hint: "Light: probability. Dark: after temperature, top-k and top-p.",
    "next token": "Next token", "token before": "Token before", generate: "go on", completions: "Words that begin with “{letters}”",
    tokens_read: "{n} tokens read", unknown_read: "Read as <unk>: {tokens}.",
    unknown_seen: "<unk> stands for what is not in the vocabulary: {seen} of the {of} tokens in training were.",
    unknown_never: "<unk> stands for what is not in the vocabulary: training had no such token, so the model has learned nothing about it.",
    backward_hint: "This model reads from the end to the beginning: type at the beginning, where it writes on.",
    unknown_next: "It expects one next with {p} %.",
  },
  zh: {
    bars_hint: "浅色：模型的概率；深色：经温度、top-k、top-p 之后。",
    temperature: "温度", "top-k": "top-k", "top-p": "top-p", generate: "续写", stop: "停止", length: "长度",
    "next token": "下一个词元", "token before": "前一个词元", entropy: "熵", nats: "奈特", undo: "撤销", redo: "重做",
    completions: "以“{letters}”开头的词", tokens_read: "已读 {n} 个词元", unknown_read: "读作 <unk> 的：{tokens}。",
    unknown_seen: "<unk> 代表词表之外的东西：训练的 {of} 个词元中有 {seen} 个。",
    unknown_never: "<unk> 代表词表之外的东西：训练中没有这样的词元，模型对它一无所知。",
    backward_hint: "这个模型从末尾往开头读：请在开头输入，它也在那里续写。",
    unknown_next: "模型认为下一个是它的概率为 {p} %。",
  },
});
