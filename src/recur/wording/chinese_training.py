"""Chinese for what the studio says of training: its refusals, what a text looks like, plain models to beat.

By the template that a line fits, as in chinese_errors.py.
"""

from __future__ import annotations

TRAINING = {
    # what is refused
    "{option} is not for the page: it names files; use the command line": "{option} 不能在页面上设置：它指向文件；请用命令行",
    "{name} must be a whole number ≥ {low}, got {value}": "{name} 必须是不小于 {low} 的整数，给出的是 {value}",
    "{name} must be a whole number in {range}, got {value}": "{name} 必须是 {range} 内的整数，给出的是 {value}",
    "{name} must be at most {most}, got {value}": "{name} 最多为 {most}，给出的是 {value}",
    "{name} must be at least {least}, got {value}": "{name} 至少为 {least}，给出的是 {value}",
    "{name} must be above {low}, got {value}": "{name} 必须大于 {low}，给出的是 {value}",
    "{name} must not be negative, got {value}": "{name} 不能为负，给出的是 {value}",
    "{name} must lie in {range}, and below {high}, got {value}": "{name} 必须在 {range} 之内且小于 {high}，给出的是 {value}",
    "{name} must lie in {range}, got {value}": "{name} 必须在 {range} 之内，给出的是 {value}",
    "{name} must be a whole number, got {value}": "{name} 必须是整数，给出的是 {value}",
    "{name} must be a number, got {value}": "{name} 必须是数，给出的是 {value}",
    "{name} must be text, got {value}": "{name} 必须是文字，给出的是 {value}",
    "{name} must be true or false, got {value}": "{name} 必须是 true 或 false，给出的是 {value}",
    "{name} must be a list, got {value}": "{name} 必须是列表，给出的是 {value}",
    "{name} must be true or false": "{name} 必须是 true 或 false",
    "device must be auto, cpu, cuda or cuda:N, got {value}": "device 必须是 auto、cpu、cuda 或 cuda:N，给出的是 {value}",
    "unknown {kind} {value}; did you mean {guess}? known: {names}": "未知的 {kind} {value}；是不是 {guess}？已知的有：{names}",
    "unknown {kind} {value}; known: {names}": "未知的 {kind} {value}；已知的有：{names}",
    "unknown text {name}": "没有名为 {name} 的文本",
    "unknown task {name}": "没有名为 {name} 的任务",
    "unknown training {name}": "没有名为 {name} 的训练",
    "options must be a JSON object": "options 必须是一个 JSON 对象",
    "the task {task} makes its own data; leave {text} out": "任务 {task} 自己生成数据；不要给出 {text}",
    "{name} cannot name a run: letters, digits, - and _, at most 60": "{name} 不能作训练记录的名称：请用字母、数字、- 和 _，最多 60 个",
    "there is a run or a training named {name} already": "已经有名为 {name} 的训练记录或训练",
    "{name} is in the queue already": "{name} 已经在队列里",
    "{name} is being trained by another process": "{name} 正由另一个进程训练",
    "{name} is not being trained from here": "{name} 不是在这里训练的",
    "{name} is being trained; stop it first": "{name} 正在训练；请先停止",
    "a run goes on for minutes, steps or epochs": "继续训练要以分钟、步数或轮数计",
    "{n} trainings wait already": "已有 {n} 个训练在等候",
    "the text is too large: at most {most} MiB": "文本太大：最多 {most} MiB",
    "all texts together are too large: at most {most} GiB; remove some of them": "全部文本合计太大：最多 {most} GiB；请移走一些",
    "there are too many texts named {name}": "名为 {name} 的文本太多",
    "the text is empty": "文本是空的",
    "the notes are too long: {n} characters, at most {most}": "笔记太长：{n} 个字符，最多 {most} 个",
    "this studio shows runs and trains none: it was started with --read-only": "这个 studio 以 --read-only 启动：只显示训练记录，不训练",
    "{n} pages are watching already; close one of them": "已有 {n} 个页面在观看；请关掉一个",
    "its process was ended by signal {n}": "它的进程被信号 {n} 结束",
    "its process ended with {n}": "它的进程以 {n} 结束",
    # what a process prints
    "to beat: {name}, {metric} {figure}": "要超过：{name}，{metric} {figure}",
    "nothing to beat: {why}": "没有可比的简单模型：{why}",
    "stopping after the step in progress; Ctrl-C once more leaves at once": "做完这一步就停；再按一次 Ctrl-C 立即结束",
    # what a text looks like
    "one": "1",
    "several": "多",
    "lines of text": "一行行的文本",
    "CoNLL columns: a word and a tag a line, blank lines between sentences": "CoNLL 列：每行一个词和一个标签，句间空行",
    "{n} columns between tabs, the first one of {m} short values that repeat": "以制表符分隔的 {n} 列，第一列是重复出现的 {m} 个短值",
    "{n} columns between tabs, the second one of {m} short values that repeat": "以制表符分隔的 {n} 列，第二列是重复出现的 {m} 个短值",
    "{n} columns between tabs, the first one of one value": "以制表符分隔的 {n} 列，第一列只有一个值",
    "{n} columns between tabs, of values that hardly repeat, the second one of symbols between spaces": (
        "以制表符分隔的 {n} 列，值很少重复，第二列是以空格分隔的符号"
    ),
    "{n} columns between tabs, of values that hardly repeat": "以制表符分隔的 {n} 列，值很少重复",
    "{n} columns between tabs": "以制表符分隔的 {n} 列",
    "{n} columns between commas, {names}": "以逗号分隔的 {n} 列：{names}",
    "a .csv without a column of numbers": "没有数值列的 .csv",
    "rows with a text ({text}) and its label ({label})": "各行有文本（{text}）及其标签（{label}）",
    "{n} rows with {m} columns of numbers and none of dates, beside words ({words}), dates are written 2024-01-31": (
        "{n} 行，{m} 列数，没有日期，另有文字列（{words}），日期应写作 2024-01-31"
    ),
    "{n} rows of a column of dates and {m} of numbers": "{n} 行，一列日期和 {m} 列数",
    "{n} rows of a column of evenly counted steps and {m} of numbers": "{n} 行，一列等距的步和 {m} 列数",
    "{n} rows with {m} columns of numbers and none of dates, beside words ({words})": "{n} 行，{m} 列数，没有日期，另有文字列（{words}）",
    "{n} rows with {m} column of numbers and none of dates, beside words ({words})": "{n} 行，{m} 列数，没有日期，另有文字列（{words}）",
    "{n} rows with {m} columns of numbers and none of dates": "{n} 行，{m} 列数，没有日期",
    "{n} rows with {m} column of numbers and none of dates": "{n} 行，{m} 列数，没有日期",
    "rows of a column of dates and {m} of numbers": "一列日期和 {m} 列数",
    "rows of a column of evenly counted steps and {m} of numbers": "一列等距的步和 {m} 列数",
    "rows with {m} columns of numbers and none of dates, beside words ({words})": "{m} 列数，没有日期，另有文字列（{words}）",
    "rows with {m} columns of numbers and none of dates": "{m} 列数，没有日期",
    "rows of several series, told apart by {column}": "多个序列，以 {column} 区分",
    "{what}, without a header": "{what}，没有表头",
    "a series in each row": "每行一个序列",
    "bracketed trees, one a line": "带括号的树，每行一棵",
    "CoNLL-U: ten columns a word, blank lines between sentences": "CoNLL-U：每词十列，句间空行",
    "{n} columns, blank lines between sentences: the last is a tag": "{n} 列，句间空行：最后一列是标签",
    "{n} columns, blank lines between sentences: the last may be a tag": "{n} 列，句间空行：最后一列可能是标签",
    "{n} rows of several series, told apart by {column}": "{n} 行，多个序列，以 {column} 区分",
    "{n} series, a row each": "{n} 个序列，每行一个",
    # what could be learned from it
    "writes the second column from the first": "由第一列写出第二列",
    "tells the first column from the second": "由第二列判断第一列",
    "tells the label of a text": "判断文本的标签",
    "writes texts of a label": "写出某个标签的文本",
    "tells the class of a sequence of numbers": "判断数列的类别",
    "takes each for an image": "把每个当作图像",
    "tells the labels of a sequence of numbers": "判断数列各步的标签",
    "takes all that is written of a sequence for its class": "把写在序列上的全部内容当作类别",
    "forecasts the columns of numbers": "预测各数值列",
    "tells one column from the others of its row": "由一行的其他列推断一列",
    "reads it as text": "当作文本来读",
    "tags every word with its last column": "用最后一列给每个词打标签",
    "classifies every node": "给每个结点分类",
    # what a run says before its first step
    "a part is held out of what it learns from, for recur eval; with --test FILE all of it is learned from": (
        "学习的数据留出一部分供 recur eval 用；给出 --test FILE 则全部用来学习"
    ),
    "{names}: learned from and measured on, so that these figures are of what it knows": (
        "{names}：既用来学习又用来评测，所以这些数字说的是它学过的东西"
    ),
    "products of {precision}, the fastest here that costs no quality; exact: --precision float32": (
        "乘积用 {precision}，这里不损质量的最快一种；要精确：--precision float32"
    ),
    "{n} thread, the fastest now; the same numbers again: --threads {same}": "{n} 个线程，现在最快；要再得到同样的数：--threads {same}",
    "{n} threads, the fastest now; the same numbers again: --threads {same}": "{n} 个线程，现在最快；要再得到同样的数：--threads {same}",
    "sized for {time} minute of this {device} ({speed} tokens a second): {sizes}; what is given by hand stays, and the rest follows from it": (
        "按这个 {device} 的 {time} 分钟定尺寸（每秒 {speed} 个词元）：{sizes}；手工给出的不变，其余随之而定"
    ),
    "sized for {time} minutes of this {device} ({speed} tokens a second): {sizes}; what is given by hand stays, and the rest follows from it": (
        "按这个 {device} 的 {time} 分钟定尺寸（每秒 {speed} 个词元）：{sizes}；手工给出的不变，其余随之而定"
    ),
    "of {parts} to measure on, one in {thin} is measured while training, and all of them at the end": (
        "{parts} 个用来评测，训练中每 {thin} 个测一个，结束时全部测"
    ),
}
