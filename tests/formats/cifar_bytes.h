#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::testing {

/// Makes records of a CIFAR file: the bytes of the labels, then 3 planes that start at those values
/// and count up by 1, 2 and 3.
inline std::vector<std::uint8_t> cifar_record(
    const std::vector<std::uint8_t>& labels, std::uint8_t red = 0, std::uint8_t green = 100) {
  std::vector<std::uint8_t> bytes = labels;
  for (int plane = 0; plane < 3; ++plane) {
    const int first = plane == 0 ? red : plane == 1 ? green : 200;
    for (int i = 0; i < 1024; ++i) {
      bytes.push_back(static_cast<std::uint8_t>(first + (plane + 1) * i));
    }
  }
  return bytes;
}

}  // namespace lockstep::testing
