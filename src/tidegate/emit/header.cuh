// Wrappers of the PTX instructions that Tidegate emits. A kernel's text holds those that it uses, verbatim.
// Everything that touches memory is volatile and clobbers memory, so that the compiler keeps it in program order; mma
// and conversions work on registers alone and may be moved freely.

using u16 = unsigned short;
using u32 = unsigned int;
using i32 = int;
using i64 = long long;
using i32 = int;
using f32 = float;
using f16 = u16;   // the bits; arithmetic is done in f32
using bf16 = u16;  // the bits; arithmetic is done in f32

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

// ------------------------------------------------------------------------------------------------ loads and stores

// The registers of integers as words.
__device__ __forceinline__ u32* words(int* registers) { return reinterpret_cast<u32*>(registers); }

__device__ __forceinline__ const u32* words(const int* registers) { return reinterpret_cast<const u32*>(registers); }

// b32: words, each an integer or two packed 16-bit elements. f32: numbers. b16: one 16-bit element, in the low half.
__device__ __forceinline__ void ld_shared_b16(u32* d, u32 at) {
  u16 x;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(x) : "r"(at) : "memory");
  d[0] = x;
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

// The magnitude; the smallest integer stays itself. (Signed results that do not fit are undefined in C++: those of u32
// wrap.)
__device__ __forceinline__ int magnitude(int a) { return a < 0 ? int(0u - u32(a)) : a; }

// The quotient rounded down, as NumPy has it: 0 of a division by 0, and the smallest integer by -1 wraps to itself.
__device__ __forceinline__ int int_floor_divide(int a, int b) {
  return b == 0 ? 0 : b == -1 ? int(0u - u32(a)) : floor_div(a, b);
}

// What int_floor_divide leaves over, with the sign of the divisor: 0 of a division by 0.
__device__ __forceinline__ int int_remainder(int a, int b) {
  if (b == 0 || b == -1) return 0;
  const int rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// Shifts by 32 and more, and by negative distances, move all bits out: PTX takes the distance as unsigned and clamps it.
__device__ __forceinline__ int shift_left(int a, int distance) {
  int x;
  asm("shl.b32 %0, %1, %2;" : "=r"(x) : "r"(a), "r"(distance));
  return x;
}

__device__ __forceinline__ int shift_right(int a, int distance) {
  int x;
  asm("shr.s32 %0, %1, %2;" : "=r"(x) : "r"(a), "r"(distance));
  return x;
}

// ------------------------------------------------------------------------------------------------ lanes

// The value of the lane whose number differs by `distance`, a power of two. All lanes of the warp take part.
template <typename T>
__device__ __forceinline__ T exchange(T value, int distance) {
  return __shfl_xor_sync(0xffffffff, value, distance);
}
