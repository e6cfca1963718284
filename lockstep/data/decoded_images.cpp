#include "lockstep/data/decoded_images.h"

#include <utility>

#include "lockstep/core/error.h"

namespace lockstep::data {
namespace {

constexpr std::int64_t kChannelsOfDecoded = 3;

// Bytes taken from a budget, given back at the end unless they were spent.
class Reservation {
 public:
  Reservation(MemoryBudget& budget, std::int64_t bytes)
      : budget_(budget), bytes_(budget.take(bytes) ? bytes : 0) {}
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  ~Reservation() { budget_.give_back(bytes_); }

  explicit operator bool() const { return bytes_ > 0; }
  void spend() { bytes_ = 0; }

 private:
  MemoryBudget& budget_;
  std::int64_t bytes_;
};

DecodedImages::Pointer decoded(const std::function<Image()>& decode) {
  try {
    return std::make_shared<const Image>(decode());
  } catch (const DataError&) {
    return nullptr;  // perhaps damaged only where nobody looks
  }
}

}  // namespace

bool MemoryBudget::take(std::int64_t bytes) {
  std::int64_t left = left_;
  while (bytes <= left) {
    if (left_.compare_exchange_weak(left, left - bytes)) return true;
  }
  return false;
}

DecodedImages::Pointer DecodedImages::kept(std::int64_t index) const {
  const std::lock_guard lock(mutex_);
  const auto found = images_.find(index);
  return found == images_.end() ? nullptr : found->second;
}

DecodedImages::Pointer DecodedImages::keep(
    std::int64_t index, ImageSize size, const std::function<Image()>& decode) {
  const std::int64_t pixels = size.width * size.height * kChannelsOfDecoded;
  Reservation room(*budget_, pixels + kBytesBesidePixels);
  if (!room) return nullptr;
  Pointer image = decoded(decode);
  if (image == nullptr) return nullptr;
  const std::lock_guard lock(mutex_);
  // Another thread may have been faster: its image stays, and this one's room is given back.
  if (images_.emplace(index, image).second) room.spend();
  return image;
}

}  // namespace lockstep::data
