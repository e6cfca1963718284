#pragma once

// Fixed-width vectors in GCC's and clang's portable notation; the flags of the including source
// decide which instructions they become. Everything has internal linkage: a function compiled for
// AVX-512 must never be the copy that the linker keeps for a processor without it.

#include <cstddef>
#include <cstdint>
#include <cstring>

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

template <typename To, typename From>
inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
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

}  // namespace
}  // namespace lockstep::reduce
