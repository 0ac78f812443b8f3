"""Small inputs that pass the doors of doors.py: what the fuzzer begins with."""

from __future__ import annotations

SPECIALS = '["<unk>", "<pad>", "<bos>", "<eos>"'
VOCAB = (
    f'{{"tokenizer": {{"kind": "char"}}, "tokens": {SPECIALS}, "a", "b"], "counts": [0, 0, 0, 0, 3, 2]}}'.encode(),
    f'{{"tokenizer": {{"kind": "word", "punctuation": true, "lower": false}}, "tokens": {SPECIALS}, "ab"],'
    ' "counts": [1, 0, 0, 1, 3]}'.encode(),
    f'{{"tokenizer": {{"kind": "space"}}, "tokens": {SPECIALS}], "counts": [1, 0, 0, 1]}}'.encode(),
)
ARPA = (
    b"\\data\\\nngram 1=4\nngram 2=2\n\n\\1-grams:\n-1\t<s>\t-0.3\n-0.6\t</s>\n-0.7\ta\t-0.2\n-0.9\tb\t0\n\n"
    b"\\2-grams:\n-0.4\t<s> a\n-0.5\ta b\n\n\\end\\\n",
    b"recur: tokens are escaped\nrecur: tokens are of the kind char\n\\data\\\nngram 1=2\n\\1-grams:\n-0.3 \\x20 \n"
    b"-0.5 b\n\\end\\\n",
)
TABLE = (
    b"t,y,z\n1,2,3\n2,4,1\n3,5,2\n4,,7\n",
    b"Date,Passengers\n1949-01,112\n1949-02,118\n1949-03,132\n",
    b't,y\n2020-01-01,1\n2020-01-02T00:00:00,"2"\n',
    b"a,b,c\n1,x,0.5\n2,y,1.5\n,x,2.5\n4,y,?\n",
)
PANEL = (
    b"unique_id,ds,y,x,k\na,2020-01-01,1,2,u\nb,2020-01-01,3,,v\na,2020-01-03,5,1,u\n",
    b'"V1","V2","V3"\n"W1","1","2"\n"W2","4",""\n',
    b"id,2020-01,2020-02\na,1,2\nb,3\n",
    b"d,y\n2020-01-31,1\n2020-02-29,2\n2020-04-30,3\n",
    b"d,y\n20200302,1\n20200303,2\n20200309,3\n20200310,3\n20200311,3\n",
)
SPECS = (
    *(b"constant", b"cosine", b"step:0.5:3", b"plateau:0.25", b"nonmono:5", b"full", b"truncated:20", b"sliding:3"),
    *(b"randomized:0.9,clip:1", b"clip:0.5", b"always", b"linear:1:0.5,sequence", b"exponential:0.99", b"sigmoid:10"),
    *(b"torch", b"glorot", b"orthogonal", b"identity:0.1", b"normal:0.01", b"zero", b"learned", b"random:0.1"),
    *(b"scaled", b"uniform:0.1", b"auto", b"cpu", b"cuda:1", b"slanted", b"slanted:0.1"),
)
TOML = (
    b'task = "language"\ntexts = ["book.txt"]\ncell = "gru"\nhidden_size = 8\nlr = 0.01\nbptt = "truncated:20"\n',
    b'task = "forecast"\ntarget = ["y"]\nquantiles = [0.1, 0.5, 0.9]\nlags = 3\n[about]\nwhat = "x"\n',
    b'task = "seq2seq"\nattention = "dot"\nteacher_forcing = "linear:1:0.5"\nmin_freq = 2\nvalid = "v.tsv"\n',
    b'task = "grid"\npixel_mean = [0.1]\npixel_deviation = [1.0]\ncorners = 2\n',
)
LABELLED = (b"cat\tpurrs\ndog\tbarks\n", b"label\ttext\ncat\tpurrs\n", b"purrs\tcat\nmeows\tcat\nbarks\tcat\n")
LABELLED_CSV = (b"cat,purrs\ndog,barks\n", b'id,text,label\n1,"pu,""r\n\nrs",cat\n2,barks,dog\n')
WAYS = (
    b'{"format": 2, "device": "NVIDIA H200", "made": {"date": "2026-11-17"}, "entries": [{"products": 4, "gates": 4, '
    b'"H": 512, "S": 64, "matmul_dtype": "bfloat16", "direction": "forward", "config": {"exchange": 1}, "us": 1.9, '
    b'"whole_us": 2.5, "cudnn_us": 14.2}]}',
    b'{"format": 2, "device": "", "made": {}, "entries": []}',
)
