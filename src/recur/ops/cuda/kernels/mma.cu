// Matrix products by tensor cores: tiles of 16 rows by 8 columns, accumulated in float32.
//
// K is processed in groups of 64 bytes per row. A thread holds 16 bytes of a group; the order of K within a group does
// not matter, because both operands use the same one.
#if NUM == BFLOAT16
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
#elif NUM == FLOAT16
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
#else
#define MMA "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
#endif
FUNCTION void mma(float (&c)[4], bits32 a0, bits32 a1, bits32 a2, bits32 a3, bits32 b0, bits32 b1) {
    asm volatile(MMA " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

FUNCTION bits32 tf32(bits32 x) {
    bits32 y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(__uint_as_float(x)));
    return y;
}
FUNCTION uint4 tf32(uint4 x) { return {tf32(x.x), tf32(x.y), tf32(x.z), tf32(x.w)}; }
// The rest x − y, rounded to TF32. A float32 product is the sum of three TF32 products: x = high + low for each operand,
// and low · low is below float32's precision.
FUNCTION bits32 less(bits32 x, bits32 y) { return tf32(__float_as_uint(__uint_as_float(x) - __uint_as_float(y))); }
FUNCTION uint4 less(uint4 x, uint4 y) { return {less(x.x, y.x), less(x.y, y.y), less(x.z, y.z), less(x.w, y.w)}; }

// A thread's part of 16 rows of W and one group of K: 16 bytes of each of two rows.
struct Weights {
    uint4 upper, lower;
};
