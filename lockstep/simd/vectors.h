#pragma once

// Vectors as wide as the instruction set that the including source is compiled for. Everything has
// internal linkage: a function compiled for AVX-512 must never be the copy that the linker keeps
// for a processor without it.

#include <cstdint>
#include <cstring>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

// LOCKSTEP_INSTRUCTIONS is plain, avx2 or avx512: LOCKSTEP_BUILD(winograd) is winograd_avx2 there,
// and LOCKSTEP_BUILD_NAME "avx2". See Note [Kernels per instruction set].
#define LOCKSTEP_JOINED(kernel, instructions) kernel##_##instructions
#define LOCKSTEP_BUILD_FOR(kernel, instructions) LOCKSTEP_JOINED(kernel, instructions)
#define LOCKSTEP_BUILD(kernel) LOCKSTEP_BUILD_FOR(kernel, LOCKSTEP_INSTRUCTIONS)
#define LOCKSTEP_QUOTED(name) #name
#define LOCKSTEP_NAME_OF(instructions) LOCKSTEP_QUOTED(instructions)
#define LOCKSTEP_BUILD_NAME LOCKSTEP_NAME_OF(LOCKSTEP_INSTRUCTIONS)

namespace lockstep::simd {
namespace {

#if defined(__AVX512BW__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

typedef float Floats __attribute__((vector_size(kLanes * 4)));
typedef std::int32_t Ints __attribute__((vector_size(kLanes * 4)));
typedef std::uint32_t Words __attribute__((vector_size(kLanes * 4)));
typedef std::uint16_t Halves __attribute__((vector_size(kLanes * 2)));
typedef std::uint8_t Bytes __attribute__((vector_size(kLanes)));

using BFloat16 = std::uint16_t;

constexpr std::int64_t kLineFloats = 16;  // of a cache line

// Not std::min: it has external linkage.
inline std::int64_t least(std::int64_t one, std::int64_t other) {
  return one < other ? one : other;
}

inline std::int64_t parts_of(std::int64_t count, std::int64_t most) {
  return (count + most - 1) / most;
}

// Subtracting zero changes nothing, -0 included, so it is free; adding it would cost an addition.
inline Floats all(float value) { return value - Floats{}; }

inline float sum(Floats vector) {
  float total = 0;
  for (int lane = 0; lane < kLanes; ++lane) total += vector[lane];
  return total;
}

// Not by std::memcpy, here and below: where it checks the size (_FORTIFY_SOURCE), a vector is
// stored by way of the stack.
template <typename Vector, typename T>
inline Vector load_stored(const T* from) {
  Vector vector;
  __builtin_memcpy(&vector, from, sizeof(vector));
  return vector;
}

inline Floats load(const float* from) { return load_stored<Floats>(from); }

// GCC takes these conversions apart, so they are spelled out where they are one instruction.
#if defined(__AVX512BW__)
inline Words widened(Halves halves) {
  return reinterpret_cast<Words>(_mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(halves)));
}
inline Words widened(Bytes bytes) {
  return reinterpret_cast<Words>(_mm512_cvtepu8_epi32(reinterpret_cast<__m128i>(bytes)));
}
#else
inline Words widened(Halves halves) { return __builtin_convertvector(halves, Words); }
inline Words widened(Bytes bytes) {
  return __builtin_convertvector(__builtin_convertvector(bytes, Halves), Words);
}
#endif

inline Floats load(const BFloat16* from) {
  return reinterpret_cast<Floats>(widened(load_stored<Halves>(from)) << 16);
}

inline Ints load(const std::uint8_t* from) {
  return reinterpret_cast<Ints>(widened(load_stored<Bytes>(from)));
}

inline Floats narrowed(Floats vector, const float*) { return vector; }

// Rounds to nearest even as LibTorch does; any NaN becomes the one quiet NaN.
inline Halves narrowed(Floats vector, const BFloat16*) {
  const Words bits = reinterpret_cast<Words>(vector);
  const Words rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const Words chosen = vector != vector ? Words{} + 0x7fc0 : rounded;
  return __builtin_convertvector(chosen, Halves);
}

inline Bytes narrowed(Ints vector, const std::uint8_t*) {
  return __builtin_convertvector(vector, Bytes);
}

inline void store(float* to, Floats vector) { __builtin_memcpy(to, &vector, sizeof(vector)); }

// Stores all lanes when there is room; what lies behind is then overwritten later by its own row.
template <typename T, typename Vector>
inline void store(T* to, Vector vector, std::int64_t room) {
  const auto stored = narrowed(vector, to);
  if (room >= kLanes) {
    __builtin_memcpy(to, &stored, sizeof(stored));
    return;
  }
  for (std::int64_t lane = 0; lane < room; ++lane) to[lane] = stored[lane];
}

// Loads all lanes when there is room to read them, else only those that exist; the rest is zero.
template <typename T>
inline auto load(const T* from, std::int64_t room) {
  if (room >= kLanes) return load(from);
  T present[kLanes] = {};
  for (std::int64_t lane = 0; lane < room; ++lane) present[lane] = from[lane];
  return load(static_cast<const T*>(present));
}

// Of floats with masks: the loops above would cost as much as several vectors.
#if defined(__AVX512BW__)
inline __mmask16 first_lanes(std::int64_t count) {
  return static_cast<__mmask16>(count >= kLanes ? 0xffffU : (1U << count) - 1);
}
inline Floats load(const float* from, std::int64_t room) {
  return _mm512_maskz_loadu_ps(first_lanes(room), from);
}
inline void store(float* to, Floats vector, std::int64_t room) {
  _mm512_mask_storeu_ps(to, first_lanes(room), vector);
}
#endif

// Asks for the memory that a loop is about to read or write, two lines of the cache on: where it
// goes on at more places at once than a processor follows by itself.
constexpr std::int64_t kBytesAhead = 128;

inline void ask_ahead(const void* place) {
  __builtin_prefetch(static_cast<const char*>(place) + kBytesAhead);
}

inline void ask_ahead_to_write(void* place) {
  __builtin_prefetch(static_cast<char*>(place) + kBytesAhead, 1);
}

inline float to_float(float value) { return value; }

inline float to_float(BFloat16 value) {
  const std::uint32_t bits = std::uint32_t{value} << 16;
  float result;
  __builtin_memcpy(&result, &bits, sizeof(result));
  return result;
}

// Calls body with the first place of each vector, and how many places are left from there.
template <typename Body>
inline void each_vector(std::int64_t count, const Body& body) {
  std::int64_t place = 0;
  for (; place + kLanes <= count; place += kLanes) body(place, std::int64_t{kLanes});
  if (place < count) body(place, count - place);
}

template <int... kLane>
struct LaneList {};
template <int kCount, int... kLane>
struct LanesBelow : LanesBelow<kCount - 1, kCount - 1, kLane...> {};
template <int... kLane>
struct LanesBelow<0, kLane...> {
  using List = LaneList<kLane...>;
};

// Of squares of kStep lanes, the upper right one changes places with the lower left one.
template <int kStep, int... kLane>
inline void exchange(Floats& upper, Floats& lower, LaneList<kLane...>) {
  const Floats above = upper, below = lower;
  upper = __builtin_shufflevector(
      above, below, ((kLane & kStep) != 0 ? kLanes + kLane - kStep : kLane)...);
  lower = __builtin_shufflevector(
      above, below, ((kLane & kStep) != 0 ? kLanes + kLane : kLane + kStep)...);
}

/// Transposes kLanes vectors, in squares that double.
template <int kStep = 1>
inline void transpose(Floats* rows) {
  if constexpr (kStep < kLanes) {
#pragma GCC unroll 16
    for (int row = 0; row < kLanes; ++row) {
      if ((row & kStep) == 0)
        exchange<kStep>(rows[row], rows[row + kStep], typename LanesBelow<kLanes>::List{});
    }
    transpose<2 * kStep>(rows);
  }
}

}  // namespace
}  // namespace lockstep::simd
