#include "lockstep/data/folder_samples.h"

#include <algorithm>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/formats/image/image_reader.h"

namespace lockstep::data {
namespace {

// Each thread reads file after file into the same memory.
struct Scratch {
  std::vector<std::uint8_t> bytes;
  Image image;
};

Scratch& scratch() {
  thread_local Scratch own;
  return own;
}

}  // namespace

FolderSamples::FolderSamples(
    ImageFolder folder, std::unique_ptr<const ImageTransform> transform, OnBadImage on_bad)
    : folder_(std::move(folder)), transform_(std::move(transform)), on_bad_(on_bad) {
  check(transform_ != nullptr, "FolderSamples: there must be a transform");
}

ImageShape FolderSamples::shape() const {
  return {3, transform_->output().height, transform_->output().width};
}

std::map<std::int64_t, std::string> FolderSamples::bad() const {
  const std::lock_guard lock(mutex_);
  return bad_;
}

std::int64_t FolderSamples::read_one(const SampleKey& key, std::span<float> out) const {
  if (on_bad_ == OnBadImage::kFail) return decode(key, out);
  if (was_decoded(key, out)) return folder_.label(key.index);
  if (on_bad_ == OnBadImage::kReplace) return replace(key, out);
  std::fill(out.begin(), out.end(), 0.F);
  return kIgnoredTarget;
}

std::int64_t FolderSamples::decode(const SampleKey& key, std::span<float> out) const {
  Scratch& own = scratch();
  folder_.open(key.index, own.bytes);
  const ImageReader reader(own.bytes, folder_.name(key.index));
  reader.read(transform_->region(reader.size(), key), own.image);
  transform_->apply(own.image.view(), key, out);
  return folder_.label(key.index);
}

std::int64_t FolderSamples::replace(SampleKey key, std::span<float> out) const {
  for (std::int64_t tries = 1; tries < size(); ++tries) {
    key.index = (key.index + 1) % size();
    if (was_decoded(key, out)) return folder_.label(key.index);
  }
  throw DataError(concat(
      "loader: no image of ", folder_.directory().string(),
      " can be read: ", bad().begin()->second));
}

bool FolderSamples::was_decoded(const SampleKey& key, std::span<float> out) const {
  try {
    decode(key, out);
    return true;
  } catch (const DataError& error) {
    const std::lock_guard lock(mutex_);
    bad_.emplace(key.index, error.what());
    return false;
  }
}

}  // namespace lockstep::data
