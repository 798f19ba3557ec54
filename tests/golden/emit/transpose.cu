// transpose for sm_80: 1 warp, 4096 bytes of shared memory. Written by Tidegate.

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

__device__ __forceinline__ void ld_shared_f32(f32* d, u32 at) {
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(d[0]) : "r"(at) : "memory");
}

__device__ __forceinline__ void st_global_f32x4(void* at, const f32* s) {
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};"
               ::"l"(at), "f"(s[0]), "f"(s[1]), "f"(s[2]), "f"(s[3])
               : "memory");
}

extern "C" __global__ void __launch_bounds__(32, 1)
transpose_kernel(const f32* a, f32* b, int M) {
  constexpr int N = 64;
  const int tid = threadIdx.x;
  extern __shared__ __align__(1024) unsigned char smem[];
  const u32 shared = shared_address(smem);
  constexpr u32 t_at = 0;  // [32 x 32] f32, swizzle 3,4,3
  f32 x[32];  // f32 in layout column
  const int m = blockIdx.x;
  const int copy_0 = tid >> 3;
  const int copy_1 = (tid & 7) * 4;
  const f32* a_copy = a + i64(copy_0) * 64 + copy_1;
  const u32 t_copy = shared + t_at + swizzle<3, 4, 3>(tid * 16);
  const u32 t_column_t = shared + t_at + swizzle<3, 4, 3>(tid * 4);
  const int column_0 = tid;
  f32* const b_column = b + i64(column_0) * M;
  #pragma unroll 1
  for (int n = 0; n < ceil_div(N, 32); ++n) {
    // cp_async t <- a[m * 32 < M, n * 32] layout copy bytes 16 line 9
    {
      const f32* const from = a_copy + (i64(m * 32) * 64 + n * 32);
      const int left_0 = M - (m * 32 + copy_0);
      const u32 at = t_copy;
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        #pragma unroll
        for (int j = 0; j < 2; ++j)
          cp_async_16_zfill((at ^ (64 * j)) + 1024 * i + 512 * j, from + 512 * i + 256 * j, 8 * i + 4 * j < left_0 ? 16 : 0);
      }
    }
    // cp_commit #s0 "publishes t"
    cp_async_commit();
    // cp_wait 0 #s1 "t: each thread's copies before reads"
    cp_async_wait<0>();
    // sync_warp #s2 "t: copies of all lanes before reads"
    __syncwarp();
    // ld_shared x <- t.T bytes 4
    {
      const u32 at = t_column_t;
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        #pragma unroll
        for (int j = 0; j < 8; ++j)
          ld_shared_f32(x + (8 * i + j), (at ^ (16 * j)) + 1024 * i + 128 * j);
      }
    }
    // st_global b[n * 32, m * 32 < M] <- x bytes 16
    {
      f32* const from = b_column + (i64(n * 32) * M + m * 32);
      const int left_1 = M - (m * 32);
      #pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (4 * i < left_1) {
          st_global_f32x4(from + 4 * i, x + (4 * i));
        }
      }
    }
    // sync_warp #s3 "t: reads before the next copy"
    __syncwarp();
  }
}
