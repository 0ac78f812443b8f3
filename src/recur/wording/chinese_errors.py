"""Chinese for errors that the page shows, by what they look like: `{name}` stands for whatever is there.

Errors are raised as plain lines in every room; whoever shows one in another language looks for its template here.
"""

from __future__ import annotations

ERRORS = {
    # the page's own
    "the input is empty": "输入是空的",
    "the text is too short: {n} tokens, and this view needs at least {fewest}": "文本太短：{n} 个词元，这个视图至少需要 {fewest} 个",
    "the text is too short: {n} tokens, and X-ray needs at least {fewest}": "文本太短：{n} 个词元，X 光至少需要 {fewest} 个",
    "the text is too long: {n} characters, at most {most}": "文本太长：{n} 个字符，最多 {most} 个",
    "the input is too long: {n} characters, at most {most}": "输入太长：{n} 个字符，最多 {most} 个",
    "the input must be rows of numbers, all of one length": "输入必须是若干行数字，各行一样长",
    "the text that this one goes on from is not remembered any more; send it again": "已不记得这段文本的前文；请重新发送",
    "{name} is a run of the task {task}; this view reads runs of the task language": (
        "{name} 是任务 {task} 的训练记录；这个视图只读任务 language 的训练记录"
    ),
    "--recurrence output has no hidden state that goes from step to step": (
        "--recurrence output 没有从一步传到下一步的隐藏状态"
    ),
    "the network of a run of the task {task} has no layer that reads along time": "任务 {task} 的网络没有沿时间阅读的层",
    "a model of the task {task} tells no classes apart": "任务 {task} 的模型不区分类别",
    "token {token} is not in the vocabulary": "词元 {token} 不在词表中",
    "signal must be one of {names}, got {given}": "signal 必须是 {names} 之一，得到 {given}",
    "losses must be one of {names}, got {given}": "losses 必须是 {names} 之一，得到 {given}",
    "mode must be one of {names}, got {given}": "mode 必须是 {names} 之一，得到 {given}",
    "cuts must be steps in 1 … {last}, before each of which the state is detached": (
        "cuts 必须是 1 … {last} 中的步，状态在其之前断开"
    ),
    "eigenvalues are shown of matrices up to {n} × {m}, and this state has {size}": (
        "只显示不超过 {n} × {m} 的矩阵的特征值，而这个状态有 {size} 维"
    ),
    "unknown view {name}": "没有视图 {name}",
    "unknown run {name}": "没有训练记录 {name}",
    "unknown lab {name}; known: {names}": "没有实验 {name}；已知的有：{names}",
    "unknown lab {name}; did you mean {guess}? known: {names}": "没有实验 {name}；是不是 {guess}？已知的有：{names}",
    "{name} is a link": "{name} 是一个链接",
    "the page has no such file": "页面没有这个文件",
    "{name} cannot be opened: {why}": "无法打开 {name}：{why}",
    "{name} is being written; try again": "{name} 正在写入；请重试",
    "{n} texts are being generated already; try again in a moment": "已有 {n} 段文本正在生成；请稍候重试",
    "{n} requests wait for {name} already; try again in a moment": "已有 {n} 个请求在等待 {name}；请稍候重试",
    # of any request
    "Content-Type must be application/json": "Content-Type 必须是 application/json",
    "request body too large: at most {most} bytes": "请求太大：最多 {most} 字节",
    "the request body must be a JSON object in UTF-8": "请求必须是 UTF-8 的 JSON 对象",
    "{name} must be {kind}, got {given}": "{name} 必须是 {kind}，得到 {given}",
    "{name} has half of a surrogate pair in it, which is no character": "{name} 含有半个代理对，不成字符",
    "{name} must lie in {low} … {high}, got {given}": "{name} 必须在 {low} … {high} 之间，得到 {given}",
    "missing or wrong token; open the address that recur studio printed": "缺少令牌或令牌不对；请打开 recur studio 打印的地址",
    "unknown Host header {host}": "未知的 Host 头 {host}",
    "cross-origin request refused": "拒绝跨源请求",
    "a file cannot be read: {why}": "无法读取文件：{why}",
    "Method Not Allowed": "不允许的方法",
    "Not Found": "没有找到",
    # of runs and texts, as they come up in the page
    "span must lie in {low} … {high} and hold at least one token, got {begin} … {end}": (
        "所选片段必须在 {low} … {high} 之间且至少含一个词元，得到 {begin} … {end}"
    ),
    "a span must lie in {low} … {high} and hold at least one token, got {begin} … {end}": (
        "所选片段必须在 {low} … {high} 之间且至少含一个词元，得到 {begin} … {end}"
    ),
    "the text holds {what}, which is no character": "文本含有 {what}，它不是字符",
    "the source {source} is empty: there is nothing to write from": "源文本 {source} 是空的：没有可据以写出的内容",
    "line {n} has no word": "第 {n} 行没有词",
    "{where}: the text has no token": "{where}：文本没有词元",
    "a sentence is words between spaces, or a list of them, got {given}": "句子是以空格隔开的词，得到 {given}",
    "a message is {n} symbols of 0 … {last}, got {given}": "消息是 {n} 个 0 … {last} 的符号，得到 {given}",
    "a row is numbers, two of them marked: {example}; got {given}": "一行是若干数字，其中两个带标记：{example}；得到 {given}",
    "{n} values are too few to forecast from; {least} are needed": "{n} 个值太少，无法预测；需要 {least} 个",
    "covariates are known {n} steps ahead, and --horizon is {horizon}; add rows": (
        "协变量只知道未来 {n} 步，而 --horizon 是 {horizon}；请补上行"
    ),
    "{where}: {n} columns, where the header has {m}": "{where}：{n} 列，而表头有 {m} 列",
    "{where}: a table has a line that names its columns, and rows below it": "{where}：表格要有一行列名，下面是各行",
    "unknown {kind} {name}; {rest}": "未知的 {kind} {name}；{rest}",
    "figures need matplotlib: pip install 'recur[plot]'": "画图需要 matplotlib：pip install 'recur[plot]'",
    "this is not text: {why}": "这不是文本：{why}",
    "the model's output is not a number: its weights are too large, or damaged": "模型的输出不是数：权重太大或已损坏",
}
"""By the template that an error's line fits."""
