"""What the equations and Step say, in Chinese."""

EQUATIONS = {
    "line {line}, column {column}: {reason}": "第 {line} 行第 {column} 列：{reason}",
    "the end of the line": "行尾",
    "at most {most} characters, got {count}": "最多 {most} 个字符，现有 {count} 个",
    "too long for one equation; give a part of it a name": "一个方程太长；请给其中一部分起个名字",
    "at most {most} equations": "最多 {most} 个方程",
    "{sign} is no sign of an equation": "方程里不能有符号 {sign}",
    "{word} goes over one letter, as in {example}": "{word} 只能放在一个字母上，例如 {example}",
    "{word} is not among the commands that are read: {known}": "不认识命令 {word}；可用的有：{known}",
    "{name} has two times": "{name} 带了两个时刻",
    "a step knows {now} and {before} only": "一步之内只有 {now} 和 {before}",
    "a subscript is a name, t or t−1; got {got}": "下标应为名称、t 或 t−1，这里是 {got}",
    "a subscript that is not closed: {close} is missing": "下标没有闭合：缺少 {close}",
    "{sign} expected, got {got}": "此处应为 {sign}，却是 {got}",
    "an equation begins with a name, as in h' = …; got {got}": "方程应以名称开头，例如 h' = …；这里是 {got}",
    "{name} cannot be defined: it is the input, or a function": "{name} 不能被定义：它是输入或函数",
    "the state before the step is given; define {name}_t": "上一步的状态是已知量，应定义 {name}_t",
    "a sign such as + or ⊙ expected, got {got}": "此处应为 + 或 ⊙ 一类的运算符，却是 {got}",
    "too many brackets inside each other: at most {most}": "括号嵌套太深：最多 {most} 层",
    "· is a product with a matrix; between two vectors write ⊙": "· 表示矩阵与向量相乘；两个向量之间请写 ⊙",
    "a sign is missing before {got}; element by element is ⊙ or *": "{got} 之前缺少运算符；逐元素相乘写 ⊙ 或 *",
    "a number expected, got {got}": "此处应为数字，却是 {got}",
    "a name, a number or a bracket expected, got {got}": "此处应为名称、数字或括号，却是 {got}",
    "no equation defines {name}": "没有方程定义 {name}",
    "unknown function {name}; known: {known}": "不认识函数 {name}；可用的有：{known}",
    "a number of this size is not read: {got}": "数字太大：{got}",
    "{name} is a matrix, which stands before what it multiplies: {name} h; vectors have small letters": (
        "{name} 是矩阵，应写在它所乘的向量之前：{name} h；向量用小写字母"
    ),
    "{name} is defined twice": "{name} 被定义了两次",
    "nothing is carried from step to step: define a state, h' = … or h_t = …": (
        "没有任何量从一步传到下一步：请定义一个状态，写 h' = … 或 h_t = …"
    ),
    "the input x is not read; a matrix brings it in, as in U x": "没有用到输入 x；要用矩阵引入，例如 U x",
    "the state {name} must be a vector of H units": "状态 {name} 必须是 H 个单元的向量",
    "{name} is a state: write {now} or {before}": "{name} 是状态：请写 {now} 或 {before}",
    "too much for one step: at most {most} operations": "一步之内运算太多：最多 {most} 个",
    "{name} would need itself; the state before the step is {before}": "{name} 的定义用到了它自己；上一步的状态写作 {before}",
    "a step reads x_t; what came before is in the states": "一步只读 x_t；之前的输入都在状态里",
    "the weight {name} is needed in two shapes": "权重 {name} 在两处需要不同的形状",
    "{name} multiplies a vector, not a number": "{name} 乘的应是向量，不是一个数",
    "vectors stand side by side in [ ], not numbers": "[ ] 里拼接的是向量，不是数",
    "vectors of two lengths meet; a matrix makes H of the input's: U x": (
        "长度不同的向量不能直接运算；输入要先乘矩阵变成 H 维：U x"
    ),
    "a cell of recur sees x through matrices only; {formula} is none": (
        "recur 的单元只能通过矩阵读取 x；{formula} 不是这样"
    ),
}

STEP = {
    "{name} must be an object, got {kind}": "{name} 必须是对象，得到 {kind}",
    "{name} must hold objects of numbers": "{name} 里应是由数字组成的对象",
    "cell must be one of {known}, got {got}": "单元应为 {known} 之一，现在是 {got}",
    "a text of 2 to {most} characters is stepped through, got {count}": "文本应有 2 到 {most} 个字符，现有 {count} 个",
    "at most {most} units can be shown, each in 0 … {last}": "最多显示 {most} 个单元，编号在 0 … {last} 之间",
    "there is no weight {name}": "没有权重 {name}",
    "there is no state {name}": "没有状态 {name}",
    "there is no number to hold at {place}": "{place} 处没有可以固定的数",
    "there is no number {place} among {count}": "共有 {count} 个数，没有第 {place} 个",
    "there is no step {step}": "没有第 {step} 步",
    "{name} has {got}, which is no number": "{name} 里的 {got} 不是数字",
    "the run has not seen {sign}: its vocabulary does not have it": "这次训练没有见过 {sign}：词表里没有它",
    "{run} computes more than one layer of its cell; Step cannot show it": "{run} 的计算不止一层单元，逐步视图无法显示",
    "{run}: Step reads runs with one layer of elman, lstm or gru that read forward": (
        "{run}：逐步视图只读取单层、正向的 elman、lstm 或 gru"
    ),
    "{run} reads words; Step spells, one character a step": "{run} 以词为单位；逐步视图一步读一个字符",
}
