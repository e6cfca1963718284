#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "lockstep/formats/image/image.h"

namespace lockstep::data {

/// An amount of memory that several users share; many threads may take from it at once.
class MemoryBudget {
 public:
  explicit MemoryBudget(std::int64_t bytes) : left_(bytes) {}

  /// Takes so many bytes; returns false, and takes none, if there are fewer.
  bool take(std::int64_t bytes);

  void give_back(std::int64_t bytes) { left_ += bytes; }
  std::int64_t left() const { return left_; }

 private:
  std::atomic<std::int64_t> left_;
};

/// The decoded images of a set that are kept, each until the end, while a budget has room.
///
/// Which images are kept depends on who comes first; what an image is does not. Many threads may
/// ask at once.
///
///     DecodedImages images(std::make_shared<MemoryBudget>(std::int64_t{2} << 30));
///     auto cat = images.kept(7);
///     if (!cat) cat = images.keep(7, reader.size(), [&] { return reader.read(); });
///     if (!cat) cat = ...;  // no room: decode what is needed
class DecodedImages {
 public:
  using Pointer = std::shared_ptr<const Image>;

  /// What an image takes beside its pixels: its place here, and in the heap.
  static constexpr std::int64_t kBytesBesidePixels = 256;

  explicit DecodedImages(std::shared_ptr<MemoryBudget> budget) : budget_(std::move(budget)) {}

  /// Returns a kept image, or null.
  Pointer kept(std::int64_t index) const;

  /// Decodes and keeps an image of three channels if there is room for one of that size; otherwise,
  /// and where the whole of a file cannot be decoded (a DataError), it returns null.
  Pointer keep(std::int64_t index, ImageSize size, const std::function<Image()>& decode);

 private:
  std::shared_ptr<MemoryBudget> budget_;
  mutable std::mutex mutex_;
  std::unordered_map<std::int64_t, Pointer> images_;
};

}  // namespace lockstep::data
