#include "lockstep/formats/fetch/tar_stream.h"

#include <algorithm>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

constexpr std::size_t kBlock = 64 * 1024;
constexpr std::uint64_t kTarBlock = 512;
constexpr std::uint64_t kFree = std::uint64_t{1} << 20;

std::size_t zeros_at_end(std::span<const std::uint8_t> bytes) {
  const auto other =
      std::find_if(bytes.rbegin(), bytes.rend(), [](std::uint8_t byte) { return byte != 0; });
  return static_cast<std::size_t>(other - bytes.rbegin());
}

}  // namespace

bool within_ratio(std::uint64_t grown, std::uint64_t read, std::uint64_t ratio) {
  return grown <= kFree || grown / ratio <= read;
}

std::size_t TarStream::Counted::read(std::span<std::uint8_t> out) {
  const std::size_t count = source_.read(out);
  bytes_ += count;
  return count;
}

TarStream::TarStream(const std::filesystem::path& path, std::uint64_t ratio)
    : file_(path), counted_(file_), source_(counted_), ratio_(ratio), block_(kBlock) {}

std::span<const std::uint8_t> TarStream::next() {
  const auto block = std::span<const std::uint8_t>(block_).first(source_.read(block_));
  given_ += block.size();
  const std::size_t zeros = zeros_at_end(block);
  zeros_ = zeros == block.size() ? zeros_ + zeros : zeros;
  if (!within_ratio(given_, counted_.bytes(), ratio_)) {
    throw DataError(concat(
        file_.name(), ": compressed offset ", counted_.bytes(), ": the archive grows to more than ",
        ratio_, " times its size"));
  }
  return block;
}

void TarStream::finish(std::uint64_t consumed) {
  while (!next().empty()) {
  }
  if (given_ - consumed > zeros_) {
    throw DataError(
        concat(file_.name(), ": offset ", consumed, ": other bytes come after the archive's end"));
  }
  if (zeros_ < 2 * kTarBlock || given_ % kTarBlock != 0) {
    throw DataError(concat(
        file_.name(), ": offset ", given_, ": the archive ends too early, without its end mark"));
  }
}

}  // namespace lockstep
