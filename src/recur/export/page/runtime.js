// Memory, weights and matrix product of a model.

let F = null, D = null, U = null;  // float32, float64 (whole numbers too) and bytes of one memory
let memory = null, free = 0, kernel = null;

const UNIT = 65536;

// Reserves bytes, aligned to 16; call `settle` after the last reservation: it may grow the memory.
function reserve(bytes) {
  const at = free;
  free += (bytes + 15) & ~15;
  return at;
}

function settle() {
  const there = memory.buffer.byteLength;
  if (free > there) memory.grow(Math.ceil((free - there) / UNIT) + 16);
  if (F === null || F.buffer !== memory.buffer) {
    F = new Float32Array(memory.buffer);
    D = new Float64Array(memory.buffer);
    U = new Uint8Array(memory.buffer);
  }
}

// Fallback in JavaScript where WebAssembly is disabled.
class PlainMemory {
  constructor() { this.buffer = new ArrayBuffer(UNIT); }
  grow(units) {
    const larger = new Uint8Array(this.buffer.byteLength + units * UNIT);
    larger.set(new Uint8Array(this.buffer));
    this.buffer = larger.buffer;
  }
}

function plainProduct(a, w, y, M, N, K, lda, ldw, ldy) {
  const f = F;
  [a, w, y, lda, ldw, ldy] = [a, w, y, lda, ldw, ldy].map((bytes) => bytes / 4);
  for (let m = 0; m < M; m++) {
    const from = a + m * lda, to = y + m * ldy;
    let n = 0;
    for (; n + 3 < N; n += 4) {
      let s0 = 0, s1 = 0, s2 = 0, s3 = 0;
      const p = w + n * ldw, q = p + ldw, r = q + ldw, s = r + ldw;
      for (let k = 0; k < K; k++) {
        const x = f[from + k];
        s0 += f[p + k] * x;
        s1 += f[q + k] * x;
        s2 += f[r + k] * x;
        s3 += f[s + k] * x;
      }
      f[to + n] += s0;
      f[to + n + 1] += s1;
      f[to + n + 2] += s2;
      f[to + n + 3] += s3;
    }
    for (; n < N; n++) {
      let sum = 0;
      for (let k = 0, p = w + n * ldw; k < K; k++) sum += f[p + k] * f[from + k];
      f[to + n] += sum;
    }
  }
}

// y[m, n] += Σ_k a[m, k] w[n, k] for contiguous matrices at offsets of F.
// The loop is WebAssembly, because JavaScript has no vector instructions.
const product = (a, w, y, M, N, K) => kernel(4 * a, 4 * w, 4 * y, M, N, K, 4 * K, 4 * K, 4 * N);

const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

function startKernel(module) {
  try {
    memory = new WebAssembly.Memory({ initial: 1 });
    kernel = new WebAssembly.Instance(new WebAssembly.Module(bytesOf(module)), { env: { memory } }).exports.product;
  } catch {
    memory = new PlainMemory();
    kernel = plainProduct;
  }
}

// Unpacks weights (pack_weights in html.py): [kind, rows, columns] each; int8 is followed by the scales of its rows.
function unpack(layout, packed) {
  const places = [];
  let at = 0;
  const take = (Type, count) => {
    const part = new Type(packed.slice(at, at + count * Type.BYTES_PER_ELEMENT).buffer);
    at += count * Type.BYTES_PER_ELEMENT;
    return part;
  };
  for (const [kind, rows, columns] of layout) places.push(reserve(rows * columns * (kind === "float" || kind === "int8" ? 4 : kind === "bool" ? 1 : 8)));
  settle();
  layout.forEach(([kind, rows, columns], k) => {
    const count = rows * columns;
    if (kind === "float") F.set(take(Float32Array, count), places[k] / 4);
    else if (kind === "double") D.set(take(Float64Array, count), places[k] / 8);
    else if (kind === "int") D.set(take(Int32Array, count), places[k] / 8);
    else if (kind === "bool") U.set(take(Uint8Array, count), places[k]);
    else {
      const q = take(Int8Array, count), scales = take(Float32Array, rows), begin = places[k] / 4;
      for (let r = 0, c = 0; r < rows; r++) for (const end = (r + 1) * columns; c < end; c++) F[begin + c] = q[c] * scales[r];
    }
  });
  return places;
}

class Model {
  constructor(about, packed) {
    free = 0;
    F = null;
    startKernel(about.kernel);
    this.graphs = makeGraphs(unpack(about.layout, bytesOf(packed)));
    this.base = free;
  }
  // Runs a graph on arrays by name; returns copies of the outputs.
  run(graph, given) {
    free = this.base;
    return this.graphs[graph](given);
  }
}

// Functions of cells and graphs that JavaScript does not have.
const sigmoid = (x) => 1 / (1 + Math.exp(-x));
const softplus = (x) => (x > 30 ? x : Math.log1p(Math.exp(x)));
const least = (a, b) => (a !== a ? a : b !== b ? b : a < b ? a : b);
const most = (a, b) => (a !== a ? a : b !== b ? b : a > b ? a : b);
const logAdd = (a, b) => {
  const high = Math.max(a, b);
  return high === -Infinity ? high : high + Math.log1p(Math.exp(-Math.abs(a - b)));
};
const even = (x) => {
  const down = Math.floor(x), part = x - down;
  return part < 0.5 ? down : part > 0.5 ? down + 1 : down % 2 ? down + 1 : down;
};
const remainder = (a, b) => {
  const rest = a % b;
  return rest && rest < 0 !== b < 0 ? rest + b : rest;
};

// Error function: power series near 0, continued fraction of its complement elsewhere.
function erf(x) {
  const z = Math.abs(x);
  let found;
  if (z !== z) return x;
  if (z < 2.5) {
    let term = z, sum = z;
    for (let n = 1; n < 60; n++) {
      term *= (-z * z) / n;
      sum += term / (2 * n + 1);
    }
    found = (2 / Math.sqrt(Math.PI)) * sum;
  } else if (z < 6) {
    let fraction = 0;
    for (let n = 60; n > 0; n--) fraction = (n / 2) / (z + fraction);
    found = 1 - Math.exp(-z * z) / Math.sqrt(Math.PI) / (z + fraction);
  } else {
    found = 1;
  }
  return x < 0 ? -found : found;
}
