// Preparation of a persistent kernel: pack W into the layout that the kernel reads, and clear memory that must be zero.
//
// Rows are padded with zeros to `width` numbers. Blocks of several heads become one block-diagonal matrix. The backward
// pass reads the transpose, which is made in tiles of shared memory so that reads and writes are both contiguous.
struct PackArgs {
    int H;
    int inner;       // numbers in a row of the given W: H, or the size of one head
    int width;
    int transposed;  // write (H, PRODUCTS · width) instead of (PRODUCTS · H, width)
    int words;       // number of 16-byte words to clear
    const num* W;    // (PRODUCTS · H, inner), or null if the kernel reads W as it is
    num* packed;
    uint4* zeros;
};

// Return element (r, c) of the dense matrix.
FUNCTION num weight(const PackArgs& a, int r, int c) {
    const int first = r % a.H / a.inner * a.inner;
    return c >= first && c < first + a.inner ? a.W[long(r) * a.inner + c - first] : rounded(real(0));
}

#define SIDE 32
#define HIGH 8  // rows of a tile that are processed at once

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
            a.packed[i] = c < H ? weight(a, r, c) : rounded(real(0));
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
            if (c < a.width && u < H) a.packed[(long(u) * PRODUCTS + product) * a.width + c] = tile[x][i];
        }
        __syncthreads();
    }
}
