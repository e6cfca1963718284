#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/formats/cifar.h"

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

/// Reads the bytes of a CIFAR file by the letter of the format; nothing if they are not whole
/// records.
inline std::optional<CifarImages> reference_cifar(
    std::span<const std::uint8_t> bytes, CifarVariant variant) {
  const std::size_t labels = variant == CifarVariant::kCifar10 ? 1 : 2;
  const std::size_t record = labels + 3072;
  if (bytes.empty() || bytes.size() % record != 0) return std::nullopt;
  CifarImages images;
  for (std::size_t at = 0; at < bytes.size(); at += record) {
    if (labels == 2 && bytes[at] > 19) return std::nullopt;
    if (bytes[at + labels - 1] > (labels == 1 ? 9 : 99)) return std::nullopt;
    if (labels == 2) images.coarse_labels.push_back(bytes[at]);
    images.labels.push_back(bytes[at + labels - 1]);
    for (std::size_t i = 0; i < 3072; ++i) {
      images.pixels.push_back(bytes[at + labels + i % 3 * 1024 + i / 3]);
    }
  }
  return images;
}

}  // namespace lockstep::testing
