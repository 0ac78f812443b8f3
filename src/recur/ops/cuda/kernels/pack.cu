// What precedes the steps: W as their kernel reads it, each row filled up with zeros to `width` numbers, of several heads
// as one matrix, back transposed; and memory that has to be zero at first.
struct PackArgs {
    int H;
    int inner;       // numbers of a row of W as it is given: H, or one head's
    int width;
    int transposed;  // whether (H, PRODUCTS · width) is made, not (PRODUCTS · H, width)
    int words;       // of 16 bytes
    const num* W;    // (PRODUCTS · H, inner), or null where it is read as it is
    num* laid;
    uint4* zeros;
};

// Number c of row r of the whole matrix.
FUNCTION num weight(const PackArgs& a, int r, int c) {
    const int first = r % a.H / a.inner * a.inner;
    return c >= first && c < first + a.inner ? a.W[long(r) * a.inner + c - first] : rounded(real(0));
}

#define SIDE 32
#define HIGH 8  // rows of a tile that are taken at once

extern "C" __global__ void __launch_bounds__(SIDE * HIGH) pack_weights(const PackArgs a) {
    extern __shared__ __align__(128) byte memory[];
    num(*tile)[SIDE + 1] = reinterpret_cast<num(*)[SIDE + 1]>(memory);
    const int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE, H = a.H;
    for (long i = long(blockIdx.x) * blockDim.x + threadIdx.x; i < a.words; i += long(gridDim.x) * blockDim.x)
        a.zeros[i] = {0, 0, 0, 0};
    if (!a.W) return;
    if (!a.transposed) {
        const long all = long(PRODUCTS) * H * a.width;
        for (long i = long(blockIdx.x) * blockDim.x + threadIdx.x; i < all; i += long(gridDim.x) * blockDim.x) {
            const int r = int(i / a.width), c = int(i % a.width);
            a.laid[i] = c < H ? weight(a, r, c) : rounded(real(0));
        }
        return;
    }
    const int wide = (a.width + SIDE - 1) / SIDE, high = (H + SIDE - 1) / SIDE;
    for (int t = blockIdx.x; t < PRODUCTS * wide * high; t += gridDim.x) {
        const int product = t / (wide * high), first_c = t / high % wide * SIDE, first_u = t % high * SIDE;
        for (int i = y; i < SIDE; i += HIGH) {
            const int c = first_c + i, u = first_u + x;
            tile[i][x] = c < H && u < H ? weight(a, product * H + c, u) : rounded(real(0));
        }
        __syncthreads();
        for (int i = y; i < SIDE; i += HIGH) {
            const int c = first_c + x, u = first_u + i;
            if (c < a.width && u < H) a.laid[(long(u) * PRODUCTS + product) * a.width + c] = tile[x][i];
        }
        __syncthreads();
    }
}
