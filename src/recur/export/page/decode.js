// Decoding: sampling with temperature, top-k, top-p and min-p; greedy search; beam search; Viterbi.

const NEVER_WRITTEN = [UNK, PAD, BOS];

// Seeded random numbers in [0, 1) (Chris Doty-Humphrey's sfc32).
function makeRandom(seed) {
  let a = 0x9e3779b9, b = 0x243f6a88, c = seed | 0, d = 1;
  const next = () => {
    const t = (((a + b) | 0) + d) | 0;
    d = (d + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = (((c << 21) | (c >>> 11)) + t) | 0;
    return (t >>> 0) / 4294967296;
  };
  for (let k = 0; k < 15; k++) next();
  return next;
}

function largest(values) {
  let best = 0;
  for (let k = 1; k < values.length; k++) if (values[k] > values[best]) best = k;
  return best;
}

// Indices of the n largest values in descending order; ties keep their order.
function top(values, n) {
  return Array.from(values.keys()).sort((a, b) => values[b] - values[a] || a - b).slice(0, n);
}

function softmax(values) {
  const made = Float64Array.from(values), most = values[largest(values)];
  let sum = 0;
  for (let k = 0; k < made.length; k++) sum += made[k] = Math.exp(made[k] - most);
  for (let k = 0; k < made.length; k++) made[k] /= sum;
  return made;
}

function logSumExp(values) {
  let most = -Infinity, sum = 0;
  for (const value of values) if (value > most) most = value;
  if (most === -Infinity) return most;
  for (const value of values) sum += Math.exp(value - most);
  return most + Math.log(sum);
}

function logSoftmax(values) {
  const total = logSumExp(values);
  return Float64Array.from(values, (value) => value - total);
}

// Sampling options: filters a distribution and samples from it.
class Choice {
  constructor({ temperature = 1, topK = 0, topP = 1, minP = 0 } = {}) {
    Object.assign(this, { temperature, topK, topP, minP });
  }
  probabilities(logits) {
    const p = softmax(this.temperature === 1 ? logits : Float64Array.from(logits, (value) => value / this.temperature));
    if (this.topK && this.topK < p.length) {
      const least = Float64Array.from(logits).sort()[p.length - this.topK];
      for (let k = 0; k < p.length; k++) if (logits[k] < least) p[k] = 0;
      scaleToOne(p);
    }
    if (this.minP) {
      const least = this.minP * p[largest(p)];
      for (let k = 0; k < p.length; k++) if (p[k] < least) p[k] = 0;
    }
    if (this.topP < 1) {
      const whole = p.reduce((sum, value) => sum + value, 0), few = ((1 - this.topP) * whole) / p.length;  // what has less is among the rest
      const order = Array.from(p.keys()).filter((k) => p[k] >= few).sort((a, b) => p[b] - p[a] || a - b), kept = new Set();
      for (let at = 0, before = 0; at < order.length && before < this.topP * whole; at++) {
        kept.add(order[at]);
        before += p[order[at]];
      }
      for (let k = 0; k < p.length; k++) if (!kept.has(k)) p[k] = 0;
    }
    return scaleToOne(p);
  }
  draw(logits, random) {
    const p = this.probabilities(logits), u = random();
    let sum = 0, last = 0;
    for (let k = 0; k < p.length; k++) {
      if (!p[k]) continue;
      sum += p[k];
      last = k;
      if (u < sum) return k;
    }
    return last;
  }
}

function scaleToOne(p) {
  const sum = p.reduce((total, value) => total + value, 0);
  for (let k = 0; k < p.length; k++) p[k] /= sum;
  return p;
}

const without = (values, never = NEVER_WRITTEN) => {
  const left = Float64Array.from(values);
  for (const k of never) left[k] = -Infinity;
  return left;
};

// Generates one sequence symbol by symbol; `choose` reads log-probabilities. Returns {ids, score, cut, looked}.
// A writer has `longest`, begin(choose) and step(token, carried) → {logp, carried, weights}.
function* written(writer, choose) {
  let [carried, score] = writer.begin(choose), token = BOS;
  const ids = [], looked = [];
  for (let t = 0; t <= writer.longest; t++) {
    const step = writer.step(token, carried), logp = without(step.logp);
    token = choose(logp);
    if (token === EOS || t < writer.longest) {
      score += logp[token];
      if (step.weights) looked.push(step.weights);
    }
    if (token === EOS) return { ids, score, cut: false, looked };
    if (t < writer.longest) {
      ids.push(token);
      yield token;
    }
    carried = step.carried;
  }
  return { ids, score, cut: true, looked };
}

function finish(steps) {
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
  }
}

const greedy = (writer) => finish(written(writer, largest));

// Beam search: the `nbest` sequences with the highest log P, as recur.decoding.beam_search returns them.
function search(writer, width, nbest = 1) {
  let beam = writer.hypotheses(width).map(({ score, carried }) => ({ score, carried, token: BOS, ids: [], looked: [] }));
  let finished = [];
  for (let t = 1; t <= writer.longest + 1; t++) {
    const candidates = [];
    for (const one of beam) {
      const step = writer.step(one.token, one.carried), logp = without(step.logp);
      const looked = step.weights ? [...one.looked, step.weights] : one.looked;
      finished.push({ ids: one.ids, score: one.score + logp[EOS], cut: false, looked });
      logp[EOS] = -Infinity;
      for (const k of top(logp, width)) candidates.push({ score: one.score + logp[k], token: k, ids: one.ids, carried: step.carried, looked });
    }
    finished = finished.filter((one) => one.score > -Infinity).sort((a, b) => b.score - a.score).slice(0, width);
    if (t > writer.longest) break;
    beam = candidates.filter((one) => one.score > -Infinity).sort((a, b) => b.score - a.score).slice(0, width)
      .map((one) => ({ ...one, ids: [...one.ids, one.token] }));
    if (!beam.length || (finished.length >= nbest && finished[nbest - 1].score >= beam[0].score)) break;
  }
  if (!finished.length && beam.length) return [{ ids: beam[0].ids, score: beam[0].score, cut: true, looked: beam[0].looked }];
  return finished.slice(0, nbest);
}

// Viterbi: best path through scores x, rows of K each, with optional transition scores {start, between, end}.
function viterbi(x, moves) {
  const K = x[0].length, behind = [];
  let best = x[0].map((score, k) => score + (moves ? moves.start[k] : 0));
  for (let t = 1; t < x.length; t++) {
    const from = new Int32Array(K), next = new Float64Array(K);
    for (let k = 0; k < K; k++) {
      let most = -Infinity;
      for (let j = 0; j < K; j++) {
        const score = best[j] + (moves ? moves.between[j * K + k] : 0);
        if (score > most) [most, from[k]] = [score, j];
      }
      next[k] = most + x[t][k];
    }
    behind.push(from);
    best = next;
  }
  if (moves) best = best.map((score, k) => score + moves.end[k]);
  const path = [largest(best)];
  for (const from of behind.reverse()) path.unshift(from[path[0]]);
  return path;
}

// Marginals P(tag k at step t): forward-backward algorithm in log space.
function marginals(x, moves) {
  if (!moves) return x.map(softmax);
  const K = x[0].length, T = x.length, alpha = [], beta = [], term = new Float64Array(K);
  for (let t = 0; t < T; t++) {
    alpha.push(x[t].map((score, k) => {
      if (!t) return moves.start[k] + score;
      for (let j = 0; j < K; j++) term[j] = alpha[t - 1][j] + moves.between[j * K + k];
      return logSumExp(term) + score;
    }));
  }
  beta[T - 1] = Float64Array.from(moves.end);
  for (let t = T - 2; t >= 0; t--) {
    beta[t] = x[t].map((_, j) => {
      for (let k = 0; k < K; k++) term[k] = moves.between[j * K + k] + x[t + 1][k] + beta[t + 1][k];
      return logSumExp(term);
    });
  }
  return alpha.map((row, t) => softmax(row.map((value, k) => value + beta[t][k])));
}
