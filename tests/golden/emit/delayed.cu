// stage for sm_80: 4 warps, 1280 bytes of shared memory. Written by Tidegate.

using u16 = unsigned short;
using u32 = unsigned int;
using i64 = long long;
using f32 = float;
using f16 = u16;   // the bits; arithmetic is done in f32
using bf16 = u16;  // the bits; arithmetic is done in f32

// A shared-memory address as the PTX instructions take it.
__device__ __forceinline__ u32 shared_address(const void* p) { return static_cast<u32>(__cvta_generic_to_shared(p)); }

// Quotient rounded up, of numbers that are not negative.
__device__ __forceinline__ constexpr int ceil_div(int a, int b) { return a / b + (a % b != 0); }

__device__ __forceinline__ void ld_shared_f32(f32* d, u32 at) {
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(d[0]) : "r"(at) : "memory");
}

__device__ __forceinline__ void st_shared_f32(u32 at, const f32* s) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(s[0]) : "memory");
}

__device__ __forceinline__ void ld_global_f32(f32* d, const void* at) {
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(d[0]) : "l"(at) : "memory");
}

__device__ __forceinline__ void st_global_f32(void* at, const f32* s) {
  asm volatile("st.global.f32 [%0], %1;" ::"l"(at), "f"(s[0]) : "memory");
}

extern "C" __global__ void __launch_bounds__(128, 1)
stage_kernel(const f32* a, f32* b, f32* guard, int N) {
  const int tid = threadIdx.x;
  extern __shared__ __align__(1024) unsigned char smem[];
  const u32 shared = shared_address(smem);
  constexpr u32 t_at = 128;  // [128] f32
  f32 x[1];  // f32 in layout own
  f32 y[1];  // f32 in layout other
  // Poison: what is read before anything has written it shows.
  for (u32 i = threadIdx.x * 4; i < 1280; i += 512) *reinterpret_cast<u32*>(smem + i) = 0xffffffffu;
  __syncthreads();
  const int own_0 = tid;
  const f32* a_own = a + own_0;
  const u32 t_own = shared + t_at + tid * 4;
  const u32 t_other = shared + t_at + (tid & 31) * 16 + (tid >> 5) * 4;
  const int other_0 = (tid & 31) * 4 + (tid >> 5);
  f32* const b_other = b + other_0;
  // delay before for
  if (0x2u >> (threadIdx.x / 32) & 1) __nanosleep(2268);
  #pragma unroll 1
  for (int n = 0; n < ceil_div(N, 128); ++n) {
    // ld_global x <- a[n * 128 < N] bytes 4 line 7
    {
      const f32* const from = a_own + (n * 128);
      const int left_0 = N - (n * 128 + own_0);
      if (0 < left_0) {
        ld_global_f32(x, from);
      } else {
        x[0] = 0.0f;
      }
    }
    // delay before st_shared
    if (0x2u >> (threadIdx.x / 32) & 1) __nanosleep(7591);
    // st_shared t <- x bytes 4 line 8
    {
      const u32 at = t_own;
      st_shared_f32(at, x);
    }
    // ld_shared y <- t bytes 4 line 9
    {
      const u32 at = t_other;
      ld_shared_f32(y, at);
    }
    // sync_block #read
    __syncthreads();
    // st_global b[n * 128 < N] <- y bytes 4 line 10
    {
      f32* const from = b_other + (n * 128);
      const int left_0 = N - (n * 128 + other_0);
      if (0 < left_0) {
        st_global_f32(from, y);
      }
    }
  }
  // Guard: bytes that nothing owns must not have changed.
  __syncthreads();
  for (u32 i = threadIdx.x * 4; i < 128; i += 512) if (*reinterpret_cast<u32*>(smem + i) != 0xffffffffu) *guard = 1.0f;
  for (u32 i = 640 + threadIdx.x * 4; i < 1280; i += 512) if (*reinterpret_cast<u32*>(smem + i) != 0xffffffffu) *guard = 1.0f;
}
