#pragma once

// Stores that go past the caches: the line is neither read first nor kept.

#include <cstddef>
#include <cstring>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace lockstep::reduce {
namespace {

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

}  // namespace
}  // namespace lockstep::reduce
