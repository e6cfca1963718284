#include "lockstep/comm/reduce/reduce_kernel.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "lockstep/simd/vectors.h"

// Compiled once for each instruction set: see Note [Kernels per instruction set].
namespace lockstep::reduce {
namespace {

// As many floats as a register holds; longer vectors would live on the stack.
#if defined(__AVX512F__)
constexpr std::size_t kLanes = 16;
#else
constexpr std::size_t kLanes = 8;
#endif

typedef float Floats __attribute__((vector_size(kLanes * sizeof(float))));
typedef std::uint32_t Words __attribute__((vector_size(kLanes * sizeof(std::uint32_t))));
typedef std::int32_t Flags __attribute__((vector_size(kLanes * sizeof(std::int32_t))));
typedef std::uint16_t Halves __attribute__((vector_size(kLanes * sizeof(std::uint16_t))));

// Not by std::memcpy, here and below: where it checks the size (_FORTIFY_SOURCE), a vector goes by
// way of the stack.
template <typename To, typename From>
inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof(to));
  return to;
}

inline Words splat(std::uint32_t value) { return Words{} + value; }

inline Words widen(Halves halves) { return __builtin_convertvector(halves, Words); }
inline Halves narrow(Words words) { return __builtin_convertvector(words, Halves); }

inline Words choose(Words condition, Words yes, Words no) {
  return (condition & yes) | (~condition & no);
}

inline Words is_true(Flags comparison) { return bits_as<Words>(comparison); }

// bfloat16 is the upper half of a float; rounding adds half a unit, or one bit less when the result
// would be odd.
inline Floats bfloat16_to_float(Halves halves) { return bits_as<Floats>(widen(halves) << 16); }

inline Halves float_to_bfloat16(Floats values) {
  const Words bits = bits_as<Words>(values);
  const Words rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const Words quiet = (bits >> 16) | 0x40u;
  const Words is_nan = is_true((bits & 0x7fffffffu) > splat(0x7f800000u));
  return narrow(choose(is_nan, quiet, rounded));
}

// IEEE half: the exponent is rebiased by 112; subnormals are renormalised by a float subtraction.
inline Floats half_to_float(Halves halves) {
  const Words bits = widen(halves);
  const Words magnitude = (bits & 0x7fffu) << 13;
  const Words exponent = magnitude & splat(0x7c00u << 13);
  const Words normal = magnitude + (112u << 23);
  const Words special = normal + (112u << 23);
  const Floats tiny = bits_as<Floats>(normal + (1u << 23)) - bits_as<Floats>(splat(113u << 23));
  const Words finite = choose(is_true(exponent == splat(0)), bits_as<Words>(tiny), normal);
  const Words value = choose(is_true(exponent == splat(0x7c00u << 13)), special, finite);
  return bits_as<Floats>(value | ((bits & 0x8000u) << 16));
}

inline Halves float_to_half(Floats values) {
  const Words bits = bits_as<Words>(values);
  const Words sign = bits & 0x80000000u;
  const Words magnitude = bits ^ sign;
  const Words special =
      choose(is_true(magnitude > splat(0x7f800000u)), splat(0x7e00u), splat(0x7c00u));
  // Adding 0.5 lets the float adder shift a subnormal result into place and round it.
  const Words tiny = bits_as<Words>(bits_as<Floats>(magnitude) + 0.5f) - splat(126u << 23);
  const Words odd = (magnitude >> 13) & 1u;
  const Words normal = (magnitude - (112u << 23) + 0xfffu + odd) >> 13;
  const Words finite = choose(is_true(magnitude < splat(113u << 23)), tiny, normal);
  const Words value = choose(is_true(magnitude >= splat(143u << 23)), special, finite);
  return narrow(value | (sign >> 16));
}

/// What the destination of store_past_caches() must be aligned to.
constexpr std::size_t kStreamAlignment = 64;

/// Stores kBytes; the destination is aligned to that, or to kStreamAlignment if they are more.
template <std::size_t kBytes>
inline void store_past_caches(void* to, const void* from) {
  auto* const target = static_cast<std::byte*>(to);
  const auto* const source = static_cast<const std::byte*>(from);
#if defined(__AVX512F__)
  if constexpr (kBytes % sizeof(__m512i) == 0) {
    for (std::size_t at = 0; at < kBytes; at += sizeof(__m512i))
      _mm512_stream_si512(reinterpret_cast<__m512i*>(target + at), _mm512_loadu_si512(source + at));
    return;
  }
#endif
#if defined(__AVX2__)
  if constexpr (kBytes % sizeof(__m256i) == 0) {
    for (std::size_t at = 0; at < kBytes; at += sizeof(__m256i))
      _mm256_stream_si256(reinterpret_cast<__m256i*>(target + at),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source + at)));
    return;
  }
#endif
#if defined(__SSE2__)
  if constexpr (kBytes % sizeof(__m128i) == 0) {
    for (std::size_t at = 0; at < kBytes; at += sizeof(__m128i))
      _mm_stream_si128(reinterpret_cast<__m128i*>(target + at),
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + at)));
    return;
  }
#endif
  std::memcpy(target, source, kBytes);
}

/// Makes what was streamed visible before whatever the thread stores next.
inline void end_stream() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

// A codec turns kLanes elements in memory into the vector in which they are combined, and back.
template <typename T>
struct Same {
  typedef T Vector __attribute__((vector_size(kLanes * sizeof(T))));
  using Stored = T;
  static Vector load(const T* from) {
    Vector vector;
    __builtin_memcpy(&vector, from, sizeof(vector));
    return vector;
  }
  static void store(T* to, Vector vector) { __builtin_memcpy(to, &vector, sizeof(vector)); }
};

template <Floats (*kWiden)(Halves), Halves (*kNarrow)(Floats)>
struct InFloat {
  using Vector = Floats;
  using Stored = std::uint16_t;
  static Vector load(const Stored* from) {
    Halves halves;
    __builtin_memcpy(&halves, from, sizeof(halves));
    return kWiden(halves);
  }
  static void store(Stored* to, Vector vector) {
    const Halves halves = kNarrow(vector);
    __builtin_memcpy(to, &halves, sizeof(halves));
  }
};

using Half = InFloat<half_to_float, float_to_half>;
using BFloat16 = InFloat<bfloat16_to_float, float_to_bfloat16>;

struct Sum {
  static auto combine(auto a, auto b) { return a + b; }
};
struct Product {
  static auto combine(auto a, auto b) { return a * b; }
};
// A NaN on any rank must show on all: `a != a` keeps the one that is already there.
struct Min {
  static auto combine(auto a, auto b) { return ((a < b) | (a != a)) ? a : b; }
};
struct Max {
  static auto combine(auto a, auto b) { return ((a > b) | (a != a)) ? a : b; }
};
struct And {
  static auto combine(auto a, auto b) { return a & b; }
};
struct Or {
  static auto combine(auto a, auto b) { return a | b; }
};
struct Xor {
  static auto combine(auto a, auto b) { return a ^ b; }
};

struct Keep {
  auto operator()(auto vector) const { return vector; }
};
struct Divide {
  float count;
  auto operator()(auto vector) const { return vector / (decltype(vector){} + count); }
};

template <typename Codec, typename Op, typename Finish>
inline void reduce_lanes(const Job& job, std::size_t at, Finish finish) {
  using Stored = typename Codec::Stored;
  auto sum = Codec::load(static_cast<const Stored*>(job.inputs[0]) + at);
  for (int input = 1; input < job.input_count; ++input) {
    sum = Op::combine(sum, Codec::load(static_cast<const Stored*>(job.inputs[input]) + at));
  }
  sum = finish(sum);
  for (int output = 0; output < job.output_count; ++output) {
    Codec::store(static_cast<Stored*>(job.outputs[output]) + at, sum);
  }
}

// The last elements go through the same vector code in a padded copy, so that they round alike.
template <typename Codec, typename Op, typename Finish>
void reduce_tail(const Job& job, std::size_t at, Finish finish) {
  using Stored = typename Codec::Stored;
  const std::size_t bytes = (job.elements - at) * sizeof(Stored);
  Stored padded[kLanes] = {};
  typename Codec::Vector sum{};
  for (int input = 0; input < job.input_count; ++input) {
    std::memcpy(padded, static_cast<const Stored*>(job.inputs[input]) + at, bytes);
    sum = input == 0 ? Codec::load(padded) : Op::combine(sum, Codec::load(padded));
  }
  Codec::store(padded, finish(sum));
  for (int output = 0; output < job.output_count; ++output) {
    std::memcpy(static_cast<Stored*>(job.outputs[output]) + at, padded, bytes);
  }
}

template <typename Stored>
inline void fetch(const Stored* from) {
  constexpr std::size_t kLineBytes = 64;
  for (std::size_t at = 0; at < kLanes * sizeof(Stored); at += kLineBytes)
    __builtin_prefetch(reinterpret_cast<const char*>(from) + at);
}

template <typename Codec, bool kStreams>
inline void put(typename Codec::Stored* to, typename Codec::Vector vector) {
  if constexpr (kStreams) {
    typename Codec::Stored packed[kLanes];
    Codec::store(packed, vector);
    store_past_caches<sizeof(packed)>(to, packed);
  } else {
    Codec::store(to, vector);
  }
}

// With inputs and outputs counted at compile time, the loops over them unroll; the pointers stay in
// registers.
template <typename Codec, typename Op, int kInputs, int kOutputs, bool kStreams, typename Finish>
std::size_t reduce_among(const Job& job, Finish finish) {
  using Stored = typename Codec::Stored;
  const Stored* inputs[kInputs];
  Stored* outputs[kOutputs];
  for (int i = 0; i < kInputs; ++i) inputs[i] = static_cast<const Stored*>(job.inputs[i]);
  for (int i = 0; i < kOutputs; ++i) outputs[i] = static_cast<Stored*>(job.outputs[i]);
  const std::size_t elements = job.elements, ahead = job.traffic.ahead / sizeof(Stored);
  std::size_t at = 0;
  for (; at + kLanes <= elements; at += kLanes) {
    // Beyond the end another rank may be at work.
    const std::size_t next = at + ahead < elements ? at + ahead : at;
    for (int i = 0; i < kInputs; ++i) fetch(inputs[i] + next);
    auto sum = Codec::load(inputs[0] + at);
    for (int i = 1; i < kInputs; ++i) sum = Op::combine(sum, Codec::load(inputs[i] + at));
    sum = finish(sum);
    for (int i = 0; i < kOutputs; ++i) put<Codec, kStreams>(outputs[i] + at, sum);
  }
  if (kStreams) end_stream();
  return at;
}

template <typename Codec, typename Op, int kInputs, typename Finish>
std::size_t reduce_to_one(const Job& job, Finish finish) {
  const bool aligned = reinterpret_cast<std::uintptr_t>(job.outputs[0]) % kStreamAlignment == 0;
  if (job.traffic.streams && aligned) return reduce_among<Codec, Op, kInputs, 1, true>(job, finish);
  return reduce_among<Codec, Op, kInputs, 1, false>(job, finish);
}

template <typename Codec, typename Op, typename Finish>
std::size_t reduce_full_vectors(const Job& job, Finish finish) {
  const auto counts = [&job](int inputs, int outputs) {
    return job.input_count == inputs && job.output_count == outputs;
  };
  if (counts(1, 1)) return reduce_to_one<Codec, Op, 1>(job, finish);
  if (counts(2, 1)) return reduce_to_one<Codec, Op, 2>(job, finish);
  if (counts(4, 1)) return reduce_to_one<Codec, Op, 4>(job, finish);
  if (counts(2, 2)) return reduce_among<Codec, Op, 2, 2, false>(job, finish);
  if (counts(4, 4)) return reduce_among<Codec, Op, 4, 4, false>(job, finish);
  std::size_t at = 0;
  for (; at + kLanes <= job.elements; at += kLanes) reduce_lanes<Codec, Op>(job, at, finish);
  return at;
}

template <typename Codec, typename Op, typename Finish>
void reduce_all(const Job& job, Finish finish) {
  const std::size_t at = reduce_full_vectors<Codec, Op>(job, finish);
  if (at < job.elements) reduce_tail<Codec, Op>(job, at, finish);
}

template <typename Codec>
void reduce_arithmetic(const Job& job) {
  switch (job.op) {
    case ReduceOp::kSum:
      return reduce_all<Codec, Sum>(job, Keep{});
    case ReduceOp::kProduct:
      return reduce_all<Codec, Product>(job, Keep{});
    case ReduceOp::kMin:
      return reduce_all<Codec, Min>(job, Keep{});
    case ReduceOp::kMax:
      return reduce_all<Codec, Max>(job, Keep{});
    default:
      break;  // the others do not fit the element; they are refused before a job is made
  }
}

template <typename Codec>
void reduce_real(const Job& job) {
  if (job.op != ReduceOp::kMean) return reduce_arithmetic<Codec>(job);
  reduce_all<Codec, Sum>(job, Divide{static_cast<float>(job.input_count)});
}

template <typename Codec>
void reduce_whole(const Job& job) {
  switch (job.op) {
    case ReduceOp::kAnd:
      return reduce_all<Codec, And>(job, Keep{});
    case ReduceOp::kOr:
      return reduce_all<Codec, Or>(job, Keep{});
    case ReduceOp::kXor:
      return reduce_all<Codec, Xor>(job, Keep{});
    default:
      return reduce_arithmetic<Codec>(job);
  }
}

void reduce_any(const Job& job) {
  switch (job.element) {
    case Element::kFloat:
      return reduce_real<Same<float>>(job);
    case Element::kDouble:
      return reduce_real<Same<double>>(job);
    case Element::kHalf:
      return reduce_real<Half>(job);
    case Element::kBFloat16:
      return reduce_real<BFloat16>(job);
    case Element::kInt8:
      return reduce_whole<Same<std::int8_t>>(job);
    case Element::kUInt8:
      return reduce_whole<Same<std::uint8_t>>(job);
    case Element::kInt16:
      return reduce_whole<Same<std::int16_t>>(job);
    case Element::kInt32:
      return reduce_whole<Same<std::int32_t>>(job);
    case Element::kInt64:
      return reduce_whole<Same<std::int64_t>>(job);
  }
}

}  // namespace

void LOCKSTEP_BUILD(reduce)(const Job& job) { reduce_any(job); }

}  // namespace lockstep::reduce
