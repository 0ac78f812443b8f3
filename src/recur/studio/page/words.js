// The page's words in both languages. A sentence is looked up by its English name.

export const languages = { en: "English", zh: "中文" };

const zh = {
  Runs: "训练", Write: "书写", See: "观察", Gradients: "梯度", Unfold: "展开",
  light: "浅色", dark: "深色", run: "运行", text: "文本", layer: "层", unit: "单元", state: "状态", gate: "门",
  lead_runs: "比较各次训练的曲线；正在训练的会实时更新。虚线是同一文本上最好的 n 元模型。",
  lead_write: "输入文字，看下一个记号的概率；点选一个记号即走上那条分支，或让模型接着写。",
  lead_see: "用一个单元或门的取值给文本上色。拖选一段，找出状态相似的地方。",
  lead_gradients: "最后一个记号的损失对每一时刻状态的梯度范数：梯度走了多远，截断在哪里把它切断。",
  lead_unfold: "沿时间展开的网络，以及每一部分的形状。",
  name: "名称", cell: "单元类型", size: "大小", step: "步数", best: "最佳困惑度", ngram: "n 元模型", live: "训练中",
  "valid perplexity": "验证困惑度", "train perplexity": "训练困惑度", "gradient norm": "梯度范数", "share clipped": "被裁剪的比例",
  curve: "曲线", samples: "各时刻的样本", "no samples": "这次训练没有保存样本。", compare: "比较", broken: "无法读取",
  empty: "这里还没有训练。试试：", temperature: "温度", "top-k": "top-k", "top-p": "top-p", "all": "全部",
  "write on": "接着写", stop: "停止", length: "长度", "next token": "下一个记号", entropy: "熵",
  bars_hint: "浅色：模型的概率；深色：经温度、top-k、top-p 之后。", follows: "各单元跟踪什么", similar: "相似的状态",
  drag_hint: "在文本上拖选，或用方向键移动、Shift 加方向键选择、回车查找。", window: "截断长度 τ", full: "完整",
  decay: "每步衰减", memory: "剩 1 % 时的步数", beyond: "超出文本", clips: "裁剪事件", "no clips": "没有训练记录。",
  steps_back: "离末尾的步数", pattern: "结构", weights: "权重", parameters: "参数",
  "one output a step": "每步一个输出（语言模型）", "output fed back": "输出反馈到下一步", "one output at the end": "只在末尾输出",
  bidirectional: "双向", "encoder–decoder": "编码器–解码器", deep: "深层", nats: "奈特", colour: "着色依据", position: "位置",
  column: "列", "line length": "行长", brackets: "括号", quotes: "引号", example: "示例", context: "上下文",
  like: "相似度", tokens: "个记号", predicts: "预测",
};

const en = {
  lead_runs: "Compare curves; a run that is training is followed live. The dashed line is the best n-gram of the same text.",
  lead_write: "Type and see what comes next; pick a token to take that branch, or let the model write on.",
  lead_see: "Text coloured by one unit or gate. Drag over a span to find places with a similar state.",
  lead_gradients: "The gradient of the last token's loss with respect to the state at every time: how far it comes, and where truncation cuts it.",
  lead_unfold: "The network unrolled along time, with the shape of every part.",
  best: "best perplexity", ngram: "n-gram", empty: "There is no run here yet. Try:", "no samples": "This run kept no samples.",
  bars_hint: "Light: what the model says. Dark: after temperature, top-k and top-p.", follows: "What units follow", similar: "Similar states",
  drag_hint: "Drag over the text, or move with the arrow keys, extend with Shift, and press Enter.", window: "truncation τ",
  decay: "decay a step", memory: "steps until 1 % is left", beyond: "beyond the text", clips: "clip events", "no clips": "No record of training.",
  broken: "cannot be read", samples: "Samples over time", curve: "Curve", steps_back: "steps from the end", "next token": "Next token",
  like: "likeness", predicts: "predicts", colour: "colour by",
};

let current = localStorage.getItem("language") || (navigator.language.startsWith("zh") ? "zh" : "en");

export const language = () => current;
export function speak(code) { current = code; localStorage.setItem("language", code); document.documentElement.lang = code; }
export const t = (name) => (current === "zh" ? zh[name] : en[name]) ?? name;
