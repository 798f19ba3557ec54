// gemm for sm_90a: 8 warps, 147456 bytes of shared memory. Written by Tidegate.

using u16 = unsigned short;
using u32 = unsigned int;
using i64 = long long;
using f32 = float;
using f16 = u16;   // the bits; arithmetic is done in f32
using bf16 = u16;  // the bits; arithmetic is done in f32

// A shared-memory address as the PTX instructions take it.
__device__ __forceinline__ u32 shared_address(const void* p) { return static_cast<u32>(__cvta_generic_to_shared(p)); }

// XOR of address bits [base, base + bits) with those `shift` higher, against bank conflicts.
template <u32 bits, u32 base, u32 shift>
__device__ __forceinline__ constexpr u32 swizzle(u32 offset) {
  return offset ^ (((offset >> (base + shift)) & ((1u << bits) - 1)) << base);
}

// Quotient rounded up, of numbers that are not negative.
__device__ __forceinline__ constexpr int ceil_div(int a, int b) { return a / b + (a % b != 0); }

__device__ __forceinline__ void cp_async_16_zfill(u32 dst, const void* src, int size) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(size) : "memory");
}

__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most `newest` of this thread's groups are incomplete.
template <int newest>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(newest) : "memory");
}

__device__ __forceinline__ void ldmatrix_x4(u32* d, u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(row)
               : "memory");
}

__device__ __forceinline__ void ldmatrix_x4_trans(u32* d, u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(row)
               : "memory");
}

// d = a b + c for one 16x8x16 block.
__device__ __forceinline__ void mma_m16n8k16_bf16(f32* d, const u32* a, const u32* b, const f32* c) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

__device__ __forceinline__ void st_global_b32(void* at, const u32* s) {
  asm volatile("st.global.b32 [%0], %1;" ::"l"(at), "r"(s[0]) : "memory");
}

// Two f32 rounded to nearest even.
__device__ __forceinline__ u32 to_bf16x2(f32 low, f32 high) {
  u32 word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}

extern "C" __global__ void __launch_bounds__(256, 1)
gemm_kernel(const bf16* a, const bf16* b, bf16* c, int M, int N, int K) {
  const int tid = threadIdx.x;
  extern __shared__ __align__(1024) unsigned char smem[];
  const u32 shared = shared_address(smem);
  constexpr u32 ta_at = 0, ta_stride = 16384;  // 3 x [128 x 64] bf16, swizzle 3,4,3
  constexpr u32 tb_at = 49152, tb_stride = 32768;  // 3 x [64 x 256] bf16, swizzle 3,4,5
  u32 ta_w = 0, tb_w = 0, ta_r = 0, tb_r = 0;  // the cursors' slots, from the first
  u32 fa[16];  // bf16 in layout frag_a
  u32 fb[16];  // bf16 in layout frag_b
  f32 acc[128];  // f32 in layout frag_c
  u32 out[64];  // bf16 in layout frag_c
  // CTAs go down the columns of bands of 8 rows: those that run together share operands in L2.
  const int rows = ceil_div(M, 128), columns = ceil_div(N, 256);
  int cta = blockIdx.x;
  const int tall = min(8, rows), band = cta / (tall * columns) * tall;
  const int height = min(tall, rows - band);
  cta %= tall * columns;
  const int m = band + cta % height, n = cta / height;
  // fill acc <- 0.0
  #pragma unroll
  for (int i = 0; i < 128; ++i)
    acc[i] = 0.0f;
  const int copy_a_0 = tid >> 3;
  const int copy_a_1 = (tid & 7) * 8;
  const bf16* a_copy_a = a + i64(copy_a_0) * K + copy_a_1;
  const u32 ta_copy_a = shared + ta_at + swizzle<3, 4, 3>(tid * 16);
  const int copy_b_0 = tid >> 5;
  const int copy_b_1 = (tid & 31) * 8;
  const bf16* b_copy_b = b + i64(copy_b_0) * N + copy_b_1;
  const u32 tb_copy_b = shared + tb_at + swizzle<3, 4, 5>(tid * 16);
  #pragma unroll 1
  for (int s = 0; s < 2; ++s) {
    if (s < ceil_div(K, 64)) {
      // cp_async ta[w] <- a[m * 128 < M, s * 64 < K] layout copy_a bytes 16 line 12
      {
        const bf16* const from = a_copy_a + (i64(m * 128) * K + s * 64);
        const int left_0 = M - (m * 128 + copy_a_0);
        const int left_1 = K - (s * 64 + copy_a_1);
        const u32 at = ta_copy_a + ta_w;
        #pragma unroll
        for (int i = 0; i < 4; ++i)
          cp_async_16_zfill(at + 4096 * i, from + i64(32 * i) * K, 32 * i < left_0 && 0 < left_1 ? 16 : 0);
      }
      // cp_async tb[w] <- b[s * 64 < K, n * 256 < N] layout copy_b bytes 16 line 13
      {
        const bf16* const from = b_copy_b + (i64(s * 64) * N + n * 256);
        const int left_0 = K - (s * 64 + copy_b_0);
        const int left_1 = N - (n * 256 + copy_b_1);
        const u32 at = tb_copy_b + tb_w;
        #pragma unroll
        for (int i = 0; i < 8; ++i)
          cp_async_16_zfill(at + 4096 * i, from + i64(8 * i) * N, 8 * i < left_0 && 0 < left_1 ? 16 : 0);
      }
      // advance w
      ta_w = ta_w == 2 * ta_stride ? 0 : ta_w + ta_stride;
      tb_w = tb_w == 2 * tb_stride ? 0 : tb_w + tb_stride;
    }
    // cp_commit #s0 "stage s of ta, tb"
    cp_async_commit();
  }
  const u32 ta_frag_a_rows = shared + ta_at + swizzle<3, 4, 3>((tid & 15) * 128 + (tid >> 4 & 1) * 16 + (tid >> 7) * 2048);
  const u32 tb_frag_b_rows = shared + tb_at + swizzle<3, 4, 5>((tid & 15) * 512 + (tid >> 4 & 7) * 16);
  #pragma unroll 1
  for (int k = 0; k < ceil_div(K, 64); ++k) {  // line 11
    // cp_wait 1 #s1 "ta, tb: each thread's copies of stage k before reads"
    cp_async_wait<1>();
    // sync_block #s2 "ta, tb: all copies of stage k before reads; reads of stage k - 1 before its slot is filled"
    __syncthreads();
    if (k + 2 < ceil_div(K, 64)) {
      // cp_async ta[w] <- a[m * 128 < M, (k + 2) * 64 < K] layout copy_a bytes 16 line 12
      {
        const bf16* const from = a_copy_a + (i64(m * 128) * K + (k + 2) * 64);
        const int left_0 = M - (m * 128 + copy_a_0);
        const int left_1 = K - ((k + 2) * 64 + copy_a_1);
        const u32 at = ta_copy_a + ta_w;
        #pragma unroll
        for (int i = 0; i < 4; ++i)
          cp_async_16_zfill(at + 4096 * i, from + i64(32 * i) * K, 32 * i < left_0 && 0 < left_1 ? 16 : 0);
      }
      // cp_async tb[w] <- b[(k + 2) * 64 < K, n * 256 < N] layout copy_b bytes 16 line 13
      {
        const bf16* const from = b_copy_b + (i64((k + 2) * 64) * N + n * 256);
        const int left_0 = K - ((k + 2) * 64 + copy_b_0);
        const int left_1 = N - (n * 256 + copy_b_1);
        const u32 at = tb_copy_b + tb_w;
        #pragma unroll
        for (int i = 0; i < 8; ++i)
          cp_async_16_zfill(at + 4096 * i, from + i64(8 * i) * N, 8 * i < left_0 && 0 < left_1 ? 16 : 0);
      }
      // advance w
      ta_w = ta_w == 2 * ta_stride ? 0 : ta_w + ta_stride;
      tb_w = tb_w == 2 * tb_stride ? 0 : tb_w + tb_stride;
    }
    // cp_commit #s3 "stage k + 2 of ta, tb"
    cp_async_commit();
    // ldmatrix fa <- ta[r]
    {
      const u32 at = ta_frag_a_rows + ta_r;
      #pragma unroll
      for (int i = 0; i < 4; ++i)
        ldmatrix_x4(fa + (4 * i), at + 4096 * i);
    }
    // ldmatrix fb <- tb[r]
    {
      const u32 at = tb_frag_b_rows + tb_r;
      #pragma unroll
      for (int i = 0; i < 4; ++i)
        ldmatrix_x4_trans(fb + (4 * i), at + 128 * i);
    }
    // mma m16n8k16 acc <- fa, fb, acc line 14
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      #pragma unroll
      for (int j = 0; j < 8; ++j)
        mma_m16n8k16_bf16(acc + (32 * i + 4 * j), fa + (4 * i), fb + (2 * j), acc + (32 * i + 4 * j));
    }
    // ldmatrix fa <- ta[r]@0,16
    {
      const u32 at = ta_frag_a_rows + ta_r;
      #pragma unroll
      for (int i = 0; i < 4; ++i)
        ldmatrix_x4(fa + (4 * i), (at ^ 32) + 4096 * i);
    }
    // ldmatrix fb <- tb[r]@16,0
    {
      const u32 at = tb_frag_b_rows + tb_r;
      #pragma unroll
      for (int i = 0; i < 4; ++i)
        ldmatrix_x4_trans(fb + (4 * i), at + 128 * i + 8192);
    }
    // mma m16n8k16 acc <- fa, fb, acc line 14
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      #pragma unroll
      for (int j = 0; j < 8; ++j)
        mma_m16n8k16_bf16(acc + (32 * i + 4 * j), fa + (4 * i), fb + (2 * j), acc + (32 * i + 4 * j));
    }
    // ldmatrix fa <- ta[r]@0,32
    {
      const u32 at = ta_frag_a_rows + ta_r;
      #pragma unroll
      for (int i = 0; i < 4; ++i)
        ldmatrix_x4(fa + (4 * i), (at ^ 64) + 4096 * i);
    }
    // ldmatrix fb <- tb[r]@32,0
    {
      const u32 at = tb_frag_b_rows + tb_r;
      #pragma unroll
      for (int i = 0; i < 4; ++i)
        ldmatrix_x4_trans(fb + (4 * i), at + 128 * i + 16384);
    }
    // mma m16n8k16 acc <- fa, fb, acc line 14
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      #pragma unroll
      for (int j = 0; j < 8; ++j)
        mma_m16n8k16_bf16(acc + (32 * i + 4 * j), fa + (4 * i), fb + (2 * j), acc + (32 * i + 4 * j));
    }
    // ldmatrix fa <- ta[r]@0,48
    {
      const u32 at = ta_frag_a_rows + ta_r;
      #pragma unroll
      for (int i = 0; i < 4; ++i)
        ldmatrix_x4(fa + (4 * i), (at ^ 96) + 4096 * i);
    }
    // ldmatrix fb <- tb[r]@48,0
    {
      const u32 at = tb_frag_b_rows + tb_r;
      #pragma unroll
      for (int i = 0; i < 4; ++i)
        ldmatrix_x4_trans(fb + (4 * i), at + 128 * i + 24576);
    }
    // mma m16n8k16 acc <- fa, fb, acc line 14
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      #pragma unroll
      for (int j = 0; j < 8; ++j)
        mma_m16n8k16_bf16(acc + (32 * i + 4 * j), fa + (4 * i), fb + (2 * j), acc + (32 * i + 4 * j));
    }
    // advance r
    ta_r = ta_r == 2 * ta_stride ? 0 : ta_r + ta_stride;
    tb_r = tb_r == 2 * tb_stride ? 0 : tb_r + tb_stride;
  }
  // cast out <- acc line 15
  #pragma unroll
  for (int i = 0; i < 64; ++i)
    out[i] = to_bf16x2(acc[2 * i], acc[2 * i + 1]);
  const int frag_c_0 = (tid >> 2 & 7) + (tid >> 7) * 16;
  const int frag_c_1 = (tid & 3) * 2 + (tid >> 5 & 3) * 16;
  bf16* const c_frag_c = c + i64(frag_c_0) * N + frag_c_1;
  // st_global c[m * 128 < M, n * 256 < N] <- out bytes 4 line 15
  {
    bf16* const from = c_frag_c + (i64(m * 128) * N + n * 256);
    const int left_0 = M - (m * 128 + frag_c_0);
    const int left_1 = N - (n * 256 + frag_c_1);
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        #pragma unroll
        for (int h = 0; h < 2; ++h) {
          #pragma unroll
          for (int q = 0; q < 2; ++q) {
            if (32 * i + 8 * q < left_0 && 64 * j + 8 * h < left_1) {
              st_global_b32(from + i64(32 * i + 8 * q) * N + 64 * j + 8 * h, out + (16 * i + 4 * j + 2 * h + q));
            }
          }
        }
      }
    }
  }
}
