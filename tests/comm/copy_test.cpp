// Copies of any length, from and to anywhere, past the caches or not.

#include "lockstep/comm/host/copy.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <vector>

namespace lockstep::host {
namespace {

using Bytes = std::vector<std::byte>;

Bytes some_bytes(std::size_t count) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
  return bytes;
}

// What std::copy does between the same places is right; around the destination nothing changes.
void expect_copied(
    std::size_t count, std::size_t from, std::size_t to, const reduce::Traffic& traffic) {
  const Bytes source = some_bytes(count + from);
  Bytes copied(count + to + 100, std::byte{9}), expected = copied;
  copy_bytes(copied.data() + to, source.data() + from, count, traffic);
  std::copy_n(source.begin() + static_cast<std::ptrdiff_t>(from), count,
      expected.begin() + static_cast<std::ptrdiff_t>(to));
  EXPECT_EQ(copied, expected) << count << " bytes from " << from << " to " << to;
}

TEST(CopyBytes, OfAnyLengthBetweenAnyPlaces) {
  for (const std::size_t count :
      {0UL, 1UL, 7UL, 63UL, 64UL, 65UL, 127UL, 1000UL, 4096UL, 20'011UL}) {
    for (const std::size_t from : {0UL, 1UL, 4UL, 8UL, 60UL}) {
      for (const std::size_t to : {0UL, 1UL, 4UL, 8UL, 63UL}) {
        expect_copied(count, from, to, {});
        expect_copied(count, from, to, {.ahead = 4096, .streams = true});
      }
    }
  }
}

TEST(CopyBytes, OntoItselfAndOverlapping) {
  for (const std::ptrdiff_t shift : {-200L, -8L, 0L, 8L, 200L}) {
    const Bytes source = some_bytes(3000);
    Bytes bytes = source;
    copy_bytes(bytes.data() + 500 + shift, bytes.data() + 500, 2000, {.streams = true});
    EXPECT_TRUE(std::equal(
        bytes.begin() + 500 + shift, bytes.begin() + 2500 + shift, source.begin() + 500));
  }
}

}  // namespace
}  // namespace lockstep::host
