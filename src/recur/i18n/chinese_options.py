"""Chinese for the help of options: by their names, or TASK.NAME where a task means something else by one."""

from __future__ import annotations

OPTIONS = {
    # Optimisation
    "batch": "一批的样例数；未给出时用任务自己的数目，GPU 上更大。",
    "optimizer": "asgd 是验证不再改进后取平均的 SGD。",
    "rate": "学习率。",
    "schedule": (
        "constant（不变）、step:γ:after（若干轮之后每轮乘 γ）、cosine（降到零）、flat:cut（在预算的这一比例之后才降）、"
        "slanted:cut（先升后降：Howard 与 Ruder 2018）、plateau:γ（停滞时乘 γ）、nonmono:n。"
    ),
    "warmup": "学习率从零升起的步数。",
    "momentum": "一步里有多少是前一步：sgd 的动量，或 adam 与 adamw 的 β₁。未给出时 sgd 为 0，后两者为 0.9。",
    "weight_decay": "把权重拉向零；未给出时 adamw 用任务自己的值，其余为 0。",
    "clip": "梯度范数的上限；0 表示不限。",
    "clip_value": "梯度每个分量的上限；0 表示不限。",
    "precision": (
        "训练和测量时矩阵乘法读取的精度：float32；tf32，GPU 上较短的 float32；torch.autocast 下的 bfloat16 或 float16，"
        "后者会缩放损失。权重与求和始终是 float32。未给出时取设备上最快而又不损害任务指标的一种。"
    ),
    "accumulate": "累加多少批之后才走一步。",
    "average": "测量并保留最近若干步权重的平均，约 1/(1 − 此值) 步；0 表示不平均。",
    "on_nan": "某一批的损失不是数时怎么办。",
    # Budget
    "minutes": "训练这么多分钟后停止；没有给出预算时用任务自己的数目。",
    "epochs": "遍历数据这么多轮后停止。",
    "steps": "训练这么多步后停止。",
    "patience": "连续这么多次测量没有改进就停止；0 表示从不。",
    "measure": (
        "每隔这么多轮在验证部分上测量一次；0 表示一次训练测十次：若全部测量会超过五分之一的时间，就只测一部分样例，"
        "最后再测全部。"
    ),
    "keep": "保留哪些权重：验证部分上最好的，或最后的；后者不需要验证部分，可用全部数据来学。",
    "checkpoint": "两次检查点之间的秒数，可以从检查点继续。",
    "baseline": "先测量简单模型，以便有可比的基线。",
    # Machine
    "device": "cpu、cuda、cuda:N，或 auto：有 GPU 就用 GPU。",
    "graph": "把训练步骤录成 CUDA 图并重放，每步一次启动：用于 GPU 和形状种类少的批。",
    "threads": "CPU 线程数；0 取当下最快的，并由该次训练沿用。线程数不同，舍入也不同。",
    "seed": "随机数的起点；种子与线程数相同，数值也相同。",
    # Data
    "fold": "交叉验证：3/10 把十份中的第三份留作测试，其余的十分之一用来验证。`--folds 10` 会训练全部十份。",
    # Tokens
    "punctuation": "按词：标点也是词元，每个汉字是一个词元。",
    "lower": "按词：不区分大小写。",
    "tree.lower": "不区分大小写。",
    "min_freq": "训练中出现次数更少的词元算作未知。",
    "tree.min_freq": "训练中出现次数更少的词算作未知。",
    "max_size": "最多保留这么多词元，包括四个特殊词元。",
    "tree.max_size": "最多保留这么多词，包括四个特殊词元。",
    "pieces": "子词：sentencepiece 学多少个片段。",
    "token": "什么是词元。",
    "classify.token": "什么是词元；未给出时，文本是句子就按词，否则按字符。",
    "conditional.token": "什么是词元；未给出时，文本是句子就按词，否则按字符。",
    "tag.token": "词怎样拼写：每词一个词元，或按字符、子词拆成多个。",
    "source_token": "源序列的符号是什么；space 指空格之间的内容。未给出时由文件决定。",
    "target_token": "目标序列的符号是什么。",
    # Carry over
    "unfreeze": "配合 --from：新层先学，之后每过这一比例的预算从上往下多放开一层；0 表示一开始就全部学习。",
    "layer_rate": "配合 --from：每一层的学习率是上一层的除以此值。",
    "vectors_extra": "配合 --vectors：还认识该文件最前面的这么多词元，即使训练文本里没有。",
    "freeze_vectors": "配合 --vectors 或 --from：词元的向量保持不变。",
    # Network
    "cell": "单元类型，按名称。",
    "hidden": "每层的单元数。",
    "tree.hidden": "每个结点的单元数。",
    "grid.hidden": "每个点、每个角的单元数。",
    "layers": "循环层的层数。",
    "grid.layers": "网格的层数，每层读下面一层。",
    "table.layers": "tanh 隐层的层数。",
    "init": "U、W 和输出矩阵 V 的初值：torch、glorot、orthogonal、identity 或 normal:σ。",
    "forget_bias": "遗忘门的偏置。",
    "chrono": "代替前者：抽取遗忘门和输入门的偏置，使各单元能记住 1 … 这么多步，即要学的最长依赖（Tallec 与 Ollivier 2018）。",
    "copy.forget_bias": "遗忘门的偏置；未给出（也没有 --chrono）且单元有遗忘门时为 4：状态大约能保持 1 + e⁴ 步。",
    "depth_input": "输入与隐层之间的 tanh 层数。",
    "depth_transition": "每个循环层内部隐层到隐层之间的 tanh 层数；按步逐个计算。",
    "depth_output": "隐层与输出之间的 tanh 层数。",
    "depth_between": "相邻两个循环层之间的 tanh 层数；没有它，线性单元（如 lru）叠成多层仍是线性的。",
    "time_input": "时间 t 也是一个输入：在学过的长度内为 −1 … 1，超出后越来越慢地增大。",
    "time_scale": "上面所说的长度；未给出时是最长的训练序列或整个训练文本的长度。",
    "time_origin": "配合 --time-input：t 为 0 的那一步；未给出时是第一行，有日期则按日期。",
    "backend": "用什么计算循环；auto 取第一个可用的。",
    "recurrence": "一步从前一步读什么：隐状态，或只读输出。读输出时，学习中各步互不等待，都接真实输出；使用时读自己的输出。",
    "bptt": (
        "反向时什么可以跨越时间：full；truncated:τ，每 τ 步一个窗口；sliding:τ，每个损失回看最近 τ 步，代价是 τ 倍；"
        "randomized:π；以及每步 ,clip:θ。"
    ),
    "residual": "第一层以上的每层把输入加到输出上。",
    "initial": "序列从哪里开始：zero、random:σ 或 learned。",
    "embedding": "嵌入的宽度；0 表示独热。",
    "tree.embedding": "嵌入的宽度。",
    "embedding_init": "嵌入的初值：scaled（正态，σ = 4/√K，最多 1）、uniform:a（± a 内均匀）或 normal:σ。",
    "direction": "从开头读（可以边来边读）、从末尾读，或两个方向都读。",
    "language.direction": "从哪一端读文本：backward 是 P(x) = Π P(x_t | x_{t+1} …)，写出的文本通向提示。",
    "conditional.direction": "从哪一端写：backward 是 P(x) = Π P(x_t | x_{t+1} …，标签)。",
    "seq2seq.direction": "编码器从哪里读源序列。",
    # Regularisation
    "dropout_embedding": "丢弃嵌入中的整个词元。",
    "dropout_input": "丢弃输入的一部分。",
    "grid.dropout_input": "丢弃像素。",
    "dropout_hidden": "在层与层之间丢弃。",
    "dropout_weight": "丢弃循环矩阵 W 的元素。",
    "dropout_output": "丢弃最后一层输出的一部分。",
    "dropout_words": "训练时把这么多词元各自读作未知词元。",
    "variational": "整个序列用同一个丢弃掩码；否则每步一个。",
    "alpha": "激活正则化：输出均方的权重。",
    "beta": "时间激活正则化：输出变化均方的权重。",
    # language
    "sized": (
        "只给出分钟预算时：宽度、批、窗口、学习率、丢弃率和轮数由文本和设备的训练速度推出（tasks/language/sizing.py），"
        "给出的选项除外。"
    ),
    "bias_init": (
        "输出偏置的初值：零，或训练中每个词元频率的 ln（自动定大小的网络如此）。有 --init-range 时随机抽取；自适应 softmax "
        "有自己的偏置。"
    ),
    "partition": "各路在批与批之间带着状态连续读，或用状态重置的窗口。",
    "window": "一个窗口的步数。",
    "jitter": "让窗口长度逐批变化（sequential），学习率随之变化。",
    "strict": "文本比一个窗口还短时拒绝，否则缩短窗口。",
    "tuned_on": "这些设置是在这么多词元的文本上找到的：文本大小不同时，丢弃率、宽度和轮数按规则推出；0 表示照用。",
    "untouched": "上述规则不改动的选项；在配方之外写出的选项也在其中。",
    "hidden_top": "最后一层的单元数；0 表示与其他层相同。与共享的嵌入等宽时，两者之间没有矩阵。",
    "tied": "嵌入同时也是输出层。",
    "softmax": (
        "怎样学习下一个词元：对全部词元；adaptive，罕见词元归入矩阵较窄的簇（Grave 等 2017）；或 sampled，与抽出的一些"
        "相比（Bengio 与 Senécal 2008），使用时仍对全部词元。"
    ),
    "softmax_samples": "每批抽多少个。",
    "init_range": "改为在 ± 此值内抽取所有权重。",
    # classes, tags, trees, images
    "pool": (
        "类别从文本的哪些状态读出：最后一个、平均、最大、三者拼接（concat），或学出权重的平均，一次（attention）或"
        "多次（self-attention）。"
    ),
    "grid.pool": "类别从图像的哪些状态读出；last 是从每个角读完之处。",
    "heads": "自注意力有几个平均。",
    "class_weights": "让罕见类别与常见类别同样重要，或所有样例一样重要。",
    "tag.class_weights": "让罕见标签与常见标签同样重要，或所有词一样重要；balanced 需要 --no-crf。",
    "blend": "把网络的概率与朴素贝叶斯、TF-IDF 逻辑回归的概率混合，比例由验证部分决定；两者都保存在训练记录里。",
    "input": "序列由什么组成；未给出时看文件：.npz、.npy 或 .npy 与 .csv 的文件夹里是数。",
    "noise": "数：学习时给（标准化后的）输入加上这一标准差的噪声。",
    "stack": "数：把相邻的这么多步当作一步来读，用于长序列。",
    "characters": "也读词的字符：用两个方向的 LSTM，或用卷积并取整个词上的最大值。",
    "character_embedding": "字符嵌入的宽度。",
    "character_width": "字符变成的向量的宽度，与词嵌入并列。",
    "casing": "词是否大写、是数还是符号，也作为输入。",
    "unknown": "训练中一个词以概率 α / (α + 出现次数) 变为 <unk>，以便学会未知词；此值是 α，0 表示从不。",
    "crf": "用条件随机场一起决定一句的标签；否则各自用 softmax。",
    "constrained": "配合 --crf：去掉 BIO、BIOES 规则和训练部分都没有的标签转移。",
    "spans": "标签是否标记片段（那就按片段测量）；未给出时，BIO 或 BIOES 标签算作片段。",
    "word_column": "哪一列是词：列号，或 CoNLL-U 的列名；未给出时是第一列或 `form`。",
    "tag_column": "哪一列是标签：列号（-1 为最后一列），或 CoNLL-U 的列名，如 xpos、feats；未给出时是最后一列或 `upos`。",
    "loss": "数：每步一个标签，或没有对齐的标签序列（ctc）；未给出时由文件决定。",
    "compose": "结点怎样由子结点组成。",
    "grid.compose": "一个点怎样由像素和前面的点组成：线性变换的 tanh，或带门的记忆。",
    "structure": "用文件自己的树、对半再对半，或从一端开始的链。",
    "labels": "从所有结点的标签学习，或只从根结点。",
    "corners": "从几个角读图像；四个角时每个点都见过整幅图像。",
    "patch": "这么多像素见方算一个点；未给出时取最小的值，使较长一边有 16 个点。",
    "shift": "学习时把每幅图像上下左右移动最多这么多个点。",
    "size": "把每幅图像缩放到这么多像素见方；未给出时所有图像必须一样大。",
    "pixel_mean": "从每个通道的像素中减去的值；未给出时是训练数据的平均。",
    "pixel_deviation": "然后除以的值；未给出时是训练数据的标准差。",
    "table.target": "要由其他列推断的列；未给出时是最后一列。",
    "classes": "目标是不是类别；未给出时，目标是文字或至多 20 种整数就算类别。",
    "column_mean": "从每个数值列（最后是目标）减去的值；未给出时是训练中的平均。",
    "column_deviation": "然后除以的值；未给出时是训练中的标准差。",
    # sequences
    "encoder_layers": "编码器的循环层数。",
    "attention": "解码器怎样看源序列：加性、缩放点积，或不看。",
    "input_feeding": "解码器的一步也读前一步看过的地方（Luong 等 2015）；各步要互相等待。",
    "copy": "符号可以从注意力所看之处直接取自源序列（See 等 2017）。",
    "batch_symbols": "一批的符号数，源与目标合计，含填充；代替对数。",
    "condition": "上下文怎样到达解码器：作为 h₀、每一步、两者都、都不，或逐个符号（aligned）。",
    "feedback": "解码器读自己先前写的内容；否则给定源序列后各符号独立。",
    "stop": "序列怎样结束：用一个符号、用单独的输出、先预测长度，或与源序列一起结束。",
    "longest": "最多写这么多符号；更长的目标会被拒绝。",
    "teacher": "教师强制：always、never、constant:p、linear:a:b、exponential:k、sigmoid:k；,sequence 按整个序列混合。",
    "smoothing": "标签平滑：目标概率中的这一部分平分给所有符号。",
    # series
    "horizon": "预测多少步；未给出时按测试文件，否则为一个季节，没有季节则为 1。",
    "season": "一个季节的步数，如月数据为 12，没有季节为 1；未给出时由日期和数值决定。",
    "target": "要预测的列；未给出时是所有数值列。多列用逗号隔开。",
    "covariates": "预先已知的列。多列用逗号隔开。",
    "past_covariates": "只知道到现在为止的列。多列用逗号隔开。",
    "static": "长表中：同一序列各行都相同的列。多列用逗号隔开。",
    "date": "日期列；未给出且不是目标时是第一列。",
    "id": "长表中：给序列命名的列。",
    "layout": "表的排法：每列一个序列、每行一个序列的一个时刻，或每行一个序列。",
    "lags": "看这么多个值的窗口；0 表示改为带着状态；未给出时由数据决定。",
    "forecast.window": "带状态时：一个训练样例中序列的步数；未给出时为四个季节，至少 48。",
    "segment": "有窗口时：用循环网络按这么多步一段来读窗口并写出预测；0 表示用整个窗口的 MLP。未给出时由数据决定，否则为 0。",
    "highway": "有窗口时：加上窗口的一个线性变换，所有序列共用，与网络一起学习。",
    "spread": "有窗口时：除以窗口内每步的平均变化，使平缓与剧烈的序列相像。",
    "base": "网络加在什么之上：水平、季节朴素预测，或每个序列的线性自回归；未给出时，序列少于二十个且都够长就用 linear。",
    "level": "数值相对于什么：最后一个值、上一季节的平均，或窗口的平均；未给出时，分段用最后一个值，否则用季节平均。",
    "scale": "每个序列除以什么：训练部分的标准差、每步平均变化，或平均值；未给出时，二十个序列以上用变化，计数用平均值，否则用标准差。",
    "transform": "用原值或对数；未给出时，所有值为正且变化随值增大就用对数。",
    "calendar": "小时、星期、月份等作为输入；未给出时，有日期并且其中最慢的在训练部分循环过三次才用。",
    "mix": "一个序列的各变量互为输入；否则各自预测。",
    "distribution": "对每个值说什么：用分位数损失学习分位数，或用似然学习分布；negative-binomial 用于计数。",
    "quantiles": "哪些分位数；中位数是预测值，最外面的是区间。用逗号隔开。",
    "bands": (
        "移动区间使其覆盖率名副其实：每次预测时按训练以来的全部数据（rolling），或按验证部分（conformal）；或用模型自己的。"
        "未给出时，序列少于二十个用 rolling，否则用 conformal。"
    ),
    "strategy": "所有步一次预测，或逐步预测，每步接着前面的。",
    "balance": "0 平等对待所有窗口，长序列占得多；1 平等对待所有序列。",
    "holdout": (
        "每个序列末尾用于测试的步数，之前同样多用于测量；0 表示两个预测长度，或序列的十分之一（最多 1000，取较大者）；"
        "二十个序列以上时为一个预测长度。"
    ),
    "train_size": "每个序列开头用于学习的步数；未给出时是所有未留出的。",
    "valid_size": "其后用于测量的步数；未给出时按 --holdout。",
    "test_size": "再其后用于测试的步数；未给出时按 --holdout。",
    # made by themselves
    "adding.length": "一行有多少个数。",
    "copy.length": "符号与回忆之间的步数。",
}

TASKS = {
    "adding": "一长串数中两个做了记号的数之和：网络能记多远。",
    "classify": "给每段文本或每个数列一个类别：每行是“标签 TAB 文本”。",
    "conditional": "写出某个标签的文本：每行是“标签 TAB 文本”。",
    "copy": "十个符号、一段长长的沉默，然后重复这十个符号：网络能记多远。",
    "forecast": "预测时间序列接下来的值，并给出区间。",
    "grid": "给每幅图像一个类别，在两个方向上读。",
    "language": "文本的下一个词元是什么；`recur sample` 可以续写。",
    "seq2seq": "由一个序列写出另一个：每行是“源 TAB 目标”。",
    "tag": "给每个词（或数列的每一步）一个标签：CoNLL 列。",
    "tree": "给带括号的树的每个结点一个类别。",
}
"""What each task learns."""
