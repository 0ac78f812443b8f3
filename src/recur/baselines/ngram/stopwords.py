"""Stop words: the words that a text in English or Chinese has most of, whatever it is about."""

ENGLISH = """
a about above after again against all also am an and any are as at be because been before being below between both but
by can could did do does doing down during each few for from further had has have having he her here hers herself him
himself his how i if in into is it its itself just may me might more most must my myself no nor not now of off on once
only or other our ours ourselves out over own same shall she should so some such than that the their theirs them
themselves then there these they this those through to too under until up upon us very was we were what when where which
while who whom why will with would you your yours yourself yourselves
"""

CHINESE = """
的 了 和 是 在 有 我 他 她 它 你 们 我们 你们 他们 这 那 这个 那个 不 也 都 就 与 及 或 而 但 但是 因为 所以 如果 一
一个 之 其 于 以 为 被 把 对 从 到 由 向 并 很 更 最 又 再 还 着 过 吗 呢 吧 啊 上 下 中 里 个 地 得
"""

STOP_WORDS = frozenset((ENGLISH + CHINESE).split())
