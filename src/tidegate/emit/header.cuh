// Wrappers of the PTX instructions that Tidegate emits. A kernel's text holds those that it uses, verbatim.
// Everything that touches memory is volatile and clobbers memory, so that the compiler keeps it in program order; mma
// and conversions work on registers alone and may be moved freely.

using u16 = unsigned short;
using u32 = unsigned int;
using i64 = long long;
using f32 = float;
using f16 = u16;   // the bits; arithmetic is done in f32
using bf16 = u16;  // the bits; arithmetic is done in f32

using i8 = signed char;
using i32 = int;
using f8e4m3 = unsigned char;  // the bits; arithmetic is done in f32
using f8e5m2 = unsigned char;  // the bits; arithmetic is done in f32

using u64 = unsigned long long;

// ------------------------------------------------------------------------------------------------ addresses

// A shared-memory address as the PTX instructions take it.
__device__ __forceinline__ u32 shared_address(const void* p) { return static_cast<u32>(__cvta_generic_to_shared(p)); }

// XOR of address bits [base, base + bits) with those `shift` higher, against bank conflicts.
template <u32 bits, u32 base, u32 shift>
__device__ __forceinline__ constexpr u32 swizzle(u32 offset) {
  return offset ^ (((offset >> (base + shift)) & ((1u << bits) - 1)) << base);
}

// Quotient rounded up, of numbers that are not negative.
__device__ __forceinline__ constexpr int ceil_div(int a, int b) { return a / b + (a % b != 0); }

// Quotient rounded down.
__device__ __forceinline__ constexpr int floor_div(int a, int b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

// What floor_div leaves over.
__device__ __forceinline__ constexpr int floor_mod(int a, int b) { return a - b * floor_div(a, b); }

// How many of a piece's `bytes` lie before the bound that is `left` bytes away.
template <int bytes>
__device__ __forceinline__ constexpr int bytes_inside(i64 left) {
  return left < 0 ? 0 : left < bytes ? static_cast<int>(left) : bytes;
}

// A row that exists: the address of one that does not is not used, but must be one.
__device__ __forceinline__ constexpr int row_inside(int row, int rows) {
  return static_cast<u32>(row) < static_cast<u32>(rows) ? row : 0;
}

// ------------------------------------------------------------------------------------------------ asynchronous copies

// Copies global to shared.
__device__ __forceinline__ void cp_async_4(u32 dst, const void* src) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(dst), "l"(src) : "memory");
}

__device__ __forceinline__ void cp_async_8(u32 dst, const void* src) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(dst), "l"(src) : "memory");
}

__device__ __forceinline__ void cp_async_16(u32 dst, const void* src) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(dst), "l"(src) : "memory");
}

// Copies the first `size` bytes and writes zeros to the rest.
__device__ __forceinline__ void cp_async_4_zfill(u32 dst, const void* src, int size) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(dst), "l"(src), "r"(size) : "memory");
}

__device__ __forceinline__ void cp_async_8_zfill(u32 dst, const void* src, int size) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(dst), "l"(src), "r"(size) : "memory");
}

__device__ __forceinline__ void cp_async_16_zfill(u32 dst, const void* src, int size) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(size) : "memory");
}

// Closes the group of this thread's copies since the last commit.
// The same if `on` holds.
__device__ __forceinline__ void cp_async_4_if(int on, u32 dst, const void* src) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %0, 0;\n\t"
      "@p cp.async.ca.shared.global [%1], [%2], 4;\n\t}" ::"r"(on), "r"(dst), "l"(src) : "memory");
}

__device__ __forceinline__ void cp_async_4_zfill_if(int on, u32 dst, const void* src, int size) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %0, 0;\n\t"
      "@p cp.async.ca.shared.global [%1], [%2], 4, %3;\n\t}" ::"r"(on), "r"(dst), "l"(src), "r"(size) : "memory");
}

__device__ __forceinline__ void cp_async_8_if(int on, u32 dst, const void* src) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %0, 0;\n\t"
      "@p cp.async.ca.shared.global [%1], [%2], 8;\n\t}" ::"r"(on), "r"(dst), "l"(src) : "memory");
}

__device__ __forceinline__ void cp_async_8_zfill_if(int on, u32 dst, const void* src, int size) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %0, 0;\n\t"
      "@p cp.async.ca.shared.global [%1], [%2], 8, %3;\n\t}" ::"r"(on), "r"(dst), "l"(src), "r"(size) : "memory");
}

__device__ __forceinline__ void cp_async_16_if(int on, u32 dst, const void* src) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %0, 0;\n\t"
      "@p cp.async.cg.shared.global.L2::128B [%1], [%2], 16;\n\t}" ::"r"(on), "r"(dst), "l"(src) : "memory");
}

__device__ __forceinline__ void cp_async_16_zfill_if(int on, u32 dst, const void* src, int size) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %0, 0;\n\t"
      "@p cp.async.cg.shared.global.L2::128B [%1], [%2], 16, %3;\n\t}" ::"r"(on), "r"(dst), "l"(src), "r"(size) : "memory");
}

__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most `newest` of this thread's groups are incomplete.
template <int newest>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(newest) : "memory");
}

// One element, the same for all threads, of an input: nothing writes it while the kernel runs.
__device__ __forceinline__ int ld_scalar(const i32* p) { return __ldg(p); }

// The same of 64 bits; the nearest number of 32.
__device__ __forceinline__ int ld_scalar(const i64* p) {
  const i64 value = __ldg(p), least = -2147483647 - 1, most = 2147483647;
  return static_cast<int>(value < least ? least : value > most ? most : value);
}

// ------------------------------------------------------------------------------------------------ barriers

// Named barrier among `threads` threads.
__device__ __forceinline__ void bar_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ------------------------------------------------------------------------------------------------ matrices

// 8x8 blocks of 16-bit elements, rows of 16 bytes at the addresses that lanes 0-7, 8-15, ... give.
__device__ __forceinline__ void ldmatrix_x1(u32* d, u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(d[0]) : "r"(row) : "memory");
}

__device__ __forceinline__ void ldmatrix_x2(u32* d, u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(d[0]), "=r"(d[1]) : "r"(row) : "memory");
}

__device__ __forceinline__ void ldmatrix_x4(u32* d, u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(row)
               : "memory");
}

// The same, each block transposed.
__device__ __forceinline__ void ldmatrix_x1_trans(u32* d, u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(d[0]) : "r"(row) : "memory");
}

__device__ __forceinline__ void ldmatrix_x2_trans(u32* d, u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(d[0]), "=r"(d[1])
               : "r"(row)
               : "memory");
}

__device__ __forceinline__ void ldmatrix_x4_trans(u32* d, u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(row)
               : "memory");
}

// The same, a number of 32 bits per word.
__device__ __forceinline__ void ldmatrix_x1_f32(f32* d, u32 row) {
  u32 w[1];
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(w[0]) : "r"(row) : "memory");
  d[0] = __uint_as_float(w[0]);
}

__device__ __forceinline__ void ldmatrix_x2_f32(f32* d, u32 row) {
  u32 w[2];
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(w[0]), "=r"(w[1]) : "r"(row) : "memory");
  d[0] = __uint_as_float(w[0]);
  d[1] = __uint_as_float(w[1]);
}

__device__ __forceinline__ void ldmatrix_x4_f32(f32* d, u32 row) {
  u32 w[4];
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
               : "r"(row)
               : "memory");
  d[0] = __uint_as_float(w[0]);
  d[1] = __uint_as_float(w[1]);
  d[2] = __uint_as_float(w[2]);
  d[3] = __uint_as_float(w[3]);
}

// d = a b + c for one 16x8x16 block.
__device__ __forceinline__ void mma_m16n8k16_bf16(f32* d, const u32* a, const u32* b, const f32* c) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

__device__ __forceinline__ void mma_m16n8k16_f16(f32* d, const u32* a, const u32* b, const f32* c) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

// The same for 16x8x8 and 16x8x32.
__device__ __forceinline__ void mma_m16n8k8_tf32(f32* d, const f32* a, const f32* b, const f32* c) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])),
        "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

__device__ __forceinline__ void mma_m16n8k32_i8(int* d, const u32* a, const u32* b, const int* c) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %11, %12, %13};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]),
        "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
}

__device__ __forceinline__ void mma_m16n8k32_f8e4m3(f32* d, const u32* a, const u32* b, const f32* c) {
  asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]),
        "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

__device__ __forceinline__ void mma_m16n8k32_f8e5m2(f32* d, const u32* a, const u32* b, const f32* c) {
  asm("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]),
        "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

__device__ __forceinline__ void mma_m16n8k32_f8e4m3_f8e5m2(f32* d, const u32* a, const u32* b, const f32* c) {
  asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]),
        "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

__device__ __forceinline__ void mma_m16n8k32_f8e5m2_f8e4m3(f32* d, const u32* a, const u32* b, const f32* c) {
  asm("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]),
        "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

// ------------------------------------------------------------------------------------------------ loads and stores

// b32: words of packed elements. f32: numbers. b16, b8: two bytes or one, in the low end of a word.
__device__ __forceinline__ void ld_shared_b16(u32* d, u32 at) {
  u16 x;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(x) : "r"(at) : "memory");
  d[0] = x;
}

__device__ __forceinline__ void ld_shared_b8(u32* d, u32 at) {
  asm volatile("ld.shared.u8 %0, [%1];" : "=r"(d[0]) : "r"(at) : "memory");
}

__device__ __forceinline__ void ld_shared_b32(u32* d, u32 at) {
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(d[0]) : "r"(at) : "memory");
}

__device__ __forceinline__ void ld_shared_b32x2(u32* d, u32 at) {
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(d[0]), "=r"(d[1]) : "r"(at) : "memory");
}

__device__ __forceinline__ void ld_shared_b32x4(u32* d, u32 at) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(at)
               : "memory");
}

__device__ __forceinline__ void ld_shared_f32(f32* d, u32 at) {
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(d[0]) : "r"(at) : "memory");
}

__device__ __forceinline__ void ld_shared_f32x2(f32* d, u32 at) {
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(d[0]), "=f"(d[1]) : "r"(at) : "memory");
}

__device__ __forceinline__ void ld_shared_f32x4(f32* d, u32 at) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
               : "r"(at)
               : "memory");
}

__device__ __forceinline__ void st_shared_b16(u32 at, const u32* s) {
  asm volatile("st.shared.u16 [%0], %1;" ::"r"(at), "h"(static_cast<u16>(s[0])) : "memory");
}

__device__ __forceinline__ void st_shared_b8(u32 at, const u32* s) {
  asm volatile("st.shared.u8 [%0], %1;" ::"r"(at), "r"(s[0]) : "memory");
}

__device__ __forceinline__ void st_shared_b32(u32 at, const u32* s) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(s[0]) : "memory");
}

__device__ __forceinline__ void st_shared_b32x2(u32 at, const u32* s) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(at), "r"(s[0]), "r"(s[1]) : "memory");
}

__device__ __forceinline__ void st_shared_b32x4(u32 at, const u32* s) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};"
               ::"r"(at), "r"(s[0]), "r"(s[1]), "r"(s[2]), "r"(s[3])
               : "memory");
}

__device__ __forceinline__ void st_shared_f32(u32 at, const f32* s) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(s[0]) : "memory");
}

__device__ __forceinline__ void st_shared_f32x2(u32 at, const f32* s) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at), "f"(s[0]), "f"(s[1]) : "memory");
}

__device__ __forceinline__ void st_shared_f32x4(u32 at, const f32* s) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};"
               ::"r"(at), "f"(s[0]), "f"(s[1]), "f"(s[2]), "f"(s[3])
               : "memory");
}

__device__ __forceinline__ void ld_global_b16(u32* d, const void* at) {
  u16 x;
  asm volatile("ld.global.u16 %0, [%1];" : "=h"(x) : "l"(at) : "memory");
  d[0] = x;
}

__device__ __forceinline__ void ld_global_b8(u32* d, const void* at) {
  asm volatile("ld.global.u8 %0, [%1];" : "=r"(d[0]) : "l"(at) : "memory");
}

__device__ __forceinline__ void ld_global_b32(u32* d, const void* at) {
  asm volatile("ld.global.b32 %0, [%1];" : "=r"(d[0]) : "l"(at) : "memory");
}

__device__ __forceinline__ void ld_global_b32x2(u32* d, const void* at) {
  asm volatile("ld.global.v2.b32 {%0, %1}, [%2];" : "=r"(d[0]), "=r"(d[1]) : "l"(at) : "memory");
}

__device__ __forceinline__ void ld_global_b32x4(u32* d, const void* at) {
  asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "l"(at)
               : "memory");
}

__device__ __forceinline__ void ld_global_f32(f32* d, const void* at) {
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(d[0]) : "l"(at) : "memory");
}

__device__ __forceinline__ void ld_global_f32x2(f32* d, const void* at) {
  asm volatile("ld.global.v2.f32 {%0, %1}, [%2];" : "=f"(d[0]), "=f"(d[1]) : "l"(at) : "memory");
}

__device__ __forceinline__ void ld_global_f32x4(f32* d, const void* at) {
  asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
               : "l"(at)
               : "memory");
}

__device__ __forceinline__ void st_global_b16(void* at, const u32* s) {
  asm volatile("st.global.u16 [%0], %1;" ::"l"(at), "h"(static_cast<u16>(s[0])) : "memory");
}

__device__ __forceinline__ void st_global_b8(void* at, const u32* s) {
  asm volatile("st.global.u8 [%0], %1;" ::"l"(at), "r"(s[0]) : "memory");
}

__device__ __forceinline__ void st_global_b32(void* at, const u32* s) {
  asm volatile("st.global.b32 [%0], %1;" ::"l"(at), "r"(s[0]) : "memory");
}

__device__ __forceinline__ void st_global_b32x2(void* at, const u32* s) {
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(at), "r"(s[0]), "r"(s[1]) : "memory");
}

__device__ __forceinline__ void st_global_b32x4(void* at, const u32* s) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
               ::"l"(at), "r"(s[0]), "r"(s[1]), "r"(s[2]), "r"(s[3])
               : "memory");
}

__device__ __forceinline__ void st_global_f32(void* at, const f32* s) {
  asm volatile("st.global.f32 [%0], %1;" ::"l"(at), "f"(s[0]) : "memory");
}

__device__ __forceinline__ void st_global_f32x2(void* at, const f32* s) {
  asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(at), "f"(s[0]), "f"(s[1]) : "memory");
}

__device__ __forceinline__ void st_global_f32x4(void* at, const f32* s) {
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};"
               ::"l"(at), "f"(s[0]), "f"(s[1]), "f"(s[2]), "f"(s[3])
               : "memory");
}

// Adds to one element, atomically for the whole GPU.
__device__ __forceinline__ void atomic_add_f32(f32* at, f32 value) {
  asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(at), "f"(value) : "memory");
}

__device__ __forceinline__ void atomic_add_i32(i32* at, i32 value) {
  asm volatile("red.relaxed.gpu.global.add.s32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}

// ------------------------------------------------------------------------------------------------ numbers

// Two 16-bit elements share a word, the first in the low half.
__device__ __forceinline__ u32 pair(u32 low, u32 high) { return low & 0xffff | high << 16; }

__device__ __forceinline__ u32 low_half(u32 word) { return word & 0xffff; }

__device__ __forceinline__ u32 high_half(u32 word) { return word >> 16; }

__device__ __forceinline__ u32 get_half(const u32* words, int index) { return words[index / 2] >> index % 2 * 16; }

__device__ __forceinline__ void set_half(u32* words, int index, u32 value) {
  u32& word = words[index / 2];
  word = index % 2 ? pair(word, value) : pair(value, high_half(word));
}

// Four 8-bit elements share a word, the first in the lowest bits.
__device__ __forceinline__ u32 quad(u32 a, u32 b, u32 c, u32 d) {
  return a & 0xff | (b & 0xff) << 8 | (c & 0xff) << 16 | d << 24;
}

__device__ __forceinline__ u32 get_byte(const u32* words, int index) { return words[index / 4] >> index % 4 * 8 & 0xff; }

__device__ __forceinline__ void set_byte(u32* words, int index, u32 value) {
  u32& word = words[index / 4];
  const int shift = index % 4 * 8;
  word = word & ~(0xffu << shift) | (value & 0xff) << shift;
}

// Integers as the words that memory has.
__device__ __forceinline__ u32* as_words(int* numbers) { return reinterpret_cast<u32*>(numbers); }

__device__ __forceinline__ i64 join(u32 low, u32 high) { return static_cast<i64>(high) << 32 | low; }

__device__ __forceinline__ u32 low_word(i64 x) { return static_cast<u32>(x); }

__device__ __forceinline__ u32 high_word(i64 x) { return static_cast<u32>(x >> 32); }

// Two f32 rounded to nearest even.
__device__ __forceinline__ u32 to_bf16x2(f32 low, f32 high) {
  u32 word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}

__device__ __forceinline__ u32 to_f16x2(f32 low, f32 high) {
  u32 word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}

// The value of a 16-bit element in the low half of a word.
__device__ __forceinline__ f32 from_bf16(u32 bits) { return __uint_as_float(bits << 16); }

__device__ __forceinline__ f32 from_f16(u32 bits) {
  f32 x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(static_cast<u16>(bits)));
  return x;
}

// The value of an 8-bit element of a word.
__device__ __forceinline__ int from_i8(u32 word, int index) { return static_cast<i8>(word >> 8 * index); }

__device__ __forceinline__ f32 from_f8e5m2(u32 word, int index) { return from_f16(word >> 8 * index << 8); }

__device__ __forceinline__ f32 from_f8e4m3(u32 word, int index) {
#if __CUDA_ARCH__ >= 890
  u32 two;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(two) : "h"(static_cast<u16>(word >> index / 2 * 16)));
  return from_f16(index % 2 ? high_half(two) : low_half(two));
#else
  const u32 bits = word >> 8 * index, size = bits & 0x7f;
  const f32 x = size == 0x7f ? __uint_as_float(0x7fc00000) : __uint_as_float(size << 20) * 0x1p120f;
  return __uint_as_float(__float_as_uint(x) | (bits & 0x80) << 24);
#endif
}

// The low bytes of four integers.
__device__ __forceinline__ u32 to_i8x4(u32 a, u32 b, u32 c, u32 d) { return quad(a, b, c, d); }

// An f32 rounded to nearest even into a byte with `fraction` bits of fraction below an exponent with this bias; what lies
// beyond `largest` becomes that.
template <int fraction, int bias>
__device__ __forceinline__ u32 to_f8(f32 x, f32 largest, u32 nan) {
  constexpr int dropped = 23 - fraction;
  const f32 normal = __uint_as_float((128u - bias) << 23), unit = __uint_as_float((151u - bias - fraction) << 23);
  const u32 sign = __float_as_uint(x) >> 24 & 0x80;
  const f32 size = fminf(fabsf(x), largest);
  u32 bits = __float_as_uint(size);
  if (size < normal) {
    bits = __float_as_uint(size + unit) - __float_as_uint(unit);  // the last place of `unit` is that of the result
  } else {
    bits = (bits + (1u << (dropped - 1)) - 1 + (bits >> dropped & 1) >> dropped) - ((127u - bias) << fraction);
  }
  return sign | (x != x ? nan : bits);
}

__device__ __forceinline__ u32 to_f8e4m3x4(f32 a, f32 b, f32 c, f32 d) {
#if __CUDA_ARCH__ >= 890
  u16 low, high;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
  return pair(low, high);
#else
  const auto one = [](f32 x) { return to_f8<3, 7>(x, 448.0f, 0x7f); };
  return quad(one(a), one(b), one(c), one(d));
#endif
}

__device__ __forceinline__ u32 to_f8e5m2x4(f32 a, f32 b, f32 c, f32 d) {
#if __CUDA_ARCH__ >= 890
  u16 low, high;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
  return pair(low, high);
#else
  const auto one = [](f32 x) { return to_f8<2, 15>(x, 57344.0f, 0x7f); };
  return quad(one(a), one(b), one(c), one(d));
#endif
}

// An f32 rounded to 10 bits of fraction, to nearest, ties away from zero.
__device__ __forceinline__ f32 to_tf32(f32 x) {
  u32 bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return __uint_as_float(bits);
}

// An f32 rounded towards zero; what lies beyond becomes the nearest integer that there is (PTX ISA, cvt), NaN 0.
__device__ __forceinline__ int to_i32(f32 x) {
  int y;
  asm("cvt.rzi.s32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return x != x ? 0 : y;
}

__device__ __forceinline__ i64 to_i64(f32 x) {
  i64 y;
  asm("cvt.rzi.s64.f32 %0, %1;" : "=l"(y) : "f"(x));
  return x != x ? 0 : y;
}

__device__ __forceinline__ int to_i8(f32 x) { return min(max(to_i32(x), -128), 127); }

// NaN when either is, as NumPy has it.
__device__ __forceinline__ f32 maximum(f32 a, f32 b) {
  f32 x;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));
  return x;
}

__device__ __forceinline__ f32 minimum(f32 a, f32 b) {
  f32 x;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));
  return x;
}

// Within 2 ulp (PTX ISA, ex2.approx).
__device__ __forceinline__ f32 power_of_two(f32 a) {
  f32 x;
  asm("ex2.approx.f32 %0, %1;" : "=f"(x) : "f"(a));
  return x;
}

// Within 2 ulp (PTX ISA, rsqrt.approx).
__device__ __forceinline__ f32 reciprocal_root(f32 a) {
  f32 x;
  asm("rsqrt.approx.f32 %0, %1;" : "=f"(x) : "f"(a));
  return x;
}

// The sign of a number, NaN of NaN.
__device__ __forceinline__ f32 sign(f32 a) { return a > 0.0f ? 1.0f : a < 0.0f ? -1.0f : a == 0.0f ? 0.0f : a; }

// The quotient rounded down, as NumPy has it: by way of the exact remainder.
__device__ __forceinline__ f32 floor_quotient(f32 a, f32 b) {
  const f32 rest = fmodf(a, b);
  if (b == 0.0f) return a / b;
  f32 quotient = (a - rest) / b;
  if (rest != 0.0f && (b < 0.0f) != (rest < 0.0f)) quotient -= 1.0f;
  if (quotient == 0.0f) return copysignf(0.0f, a / b);
  const f32 whole = floorf(quotient);
  return quotient - whole > 0.5f ? whole + 1.0f : whole;
}

// What floor_quotient leaves over, with the sign of the divisor.
__device__ __forceinline__ f32 floor_remainder(f32 a, f32 b) {
  const f32 rest = fmodf(a, b);
  if (b == 0.0f) return rest;
  if (rest == 0.0f) return copysignf(0.0f, b);
  return (b < 0.0f) != (rest < 0.0f) ? rest + b : rest;
}

// ------------------------------------------------------------------------------------------------ integers

// -a, which C++ leaves undefined for the smallest integer: that stays itself, as u64 wraps.
template <typename T>
__device__ __forceinline__ T negated(T a) { return static_cast<T>(0 - static_cast<u64>(a)); }

// The magnitude; the smallest integer stays itself.
template <typename T>
__device__ __forceinline__ T magnitude(T a) { return a < 0 ? negated(a) : a; }

// The quotient rounded down, as NumPy has it: 0 of a division by 0, and the smallest integer by -1 wraps to itself.
template <typename T>
__device__ __forceinline__ T int_floor_divide(T a, T b) {
  if (b == 0) return 0;
  if (b == -1) return negated(a);
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

// What int_floor_divide leaves over, with the sign of the divisor: 0 of a division by 0.
template <typename T>
__device__ __forceinline__ T int_remainder(T a, T b) {
  if (b == 0 || b == -1) return 0;
  const T rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// Shifts by as many bits as there are, and by negative distances, move all of them out: PTX takes the distance as
// unsigned and clamps it.
__device__ __forceinline__ int shift_left(int a, int distance) {
  int x;
  asm("shl.b32 %0, %1, %2;" : "=r"(x) : "r"(a), "r"(distance));
  return x;
}
__device__ __forceinline__ i64 shift_left(i64 a, i64 distance) {
  i64 x;
  asm("shl.b64 %0, %1, %2;" : "=l"(x) : "l"(a), "r"(distance < 0 || distance > 64 ? 64 : int(distance)));
  return x;
}

__device__ __forceinline__ int shift_right(int a, int distance) {
  int x;
  asm("shr.s32 %0, %1, %2;" : "=r"(x) : "r"(a), "r"(distance));
  return x;
}
__device__ __forceinline__ i64 shift_right(i64 a, i64 distance) {
  i64 x;
  asm("shr.s64 %0, %1, %2;" : "=l"(x) : "l"(a), "r"(distance < 0 || distance > 64 ? 64 : int(distance)));
  return x;
}

// ------------------------------------------------------------------------------------------------ lanes

// The value of the lane whose number differs by `distance`, a power of two. All lanes of the warp take part.
template <typename T>
__device__ __forceinline__ T exchange(T value, int distance) {
  return __shfl_xor_sync(0xffffffff, value, distance);
}
