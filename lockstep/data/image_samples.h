#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "lockstep/data/image_folder.h"
#include "lockstep/data/pixels/pixel_scale.h"
#include "lockstep/data/samples.h"
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
/// Which images are kept depends on the order of the calls; what an image holds does not. Many
/// threads may call at once.
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

/// Images in memory as they are, scaled: a whole batch in one pass.
class StoredSamples final : public Samples {
 public:
  explicit StoredSamples(InMemoryImages images, const Normalization& normalization = {});

  std::int64_t size() const override { return images_.size(); }
  std::int64_t classes() const override { return images_.classes(); }
  ImageShape shape() const override { return images_.shape(); }
  std::string name(std::int64_t index) const override;
  std::optional<std::int64_t> label(std::int64_t index) const override {
    return images_.label(index);
  }
  void read(std::span<const SampleKey> keys, const Batch& out) const override;
  StoredImage stored(std::int64_t index) const override {
    return {this, index % images_.stored_images()};
  }

  const InMemoryImages& images() const { return images_; }
  const PixelScale& scale() const { return scale_; }

 private:
  InMemoryImages images_;
  PixelScale scale_;
};

/// Images in memory, each through a transform: its own look in every epoch.
class TransformedSamples final : public SingleSamples {
 public:
  TransformedSamples(InMemoryImages images, std::unique_ptr<const ImageTransform> transform);

  std::int64_t size() const override { return images_.size(); }
  std::int64_t classes() const override { return images_.classes(); }
  ImageShape shape() const override;
  std::string name(std::int64_t index) const override;
  std::optional<std::int64_t> label(std::int64_t index) const override {
    return images_.label(index);
  }

 private:
  std::int64_t read_one(const SampleKey& key, std::span<float> out) const override;

  InMemoryImages images_;
  std::unique_ptr<const ImageTransform> transform_;
};

/// The treatment of an image file that cannot be decoded.
enum class OnBadImage {
  kFail,     ///< its DataError ends the walk
  kReplace,  ///< the next file of the same part of the folder that can be read stands in, with its
             ///< own class
  kIgnore,   ///< a black image of class kIgnoredTarget stands in, which no loss and no count takes
};

/// The images of a folder, each read and decoded when its turn comes, or kept from then on while a
/// budget has room.
///
/// A kept image is not read again: a later change of its file is not seen. The samples are the same
/// with and without a budget.
///
/// A file is bad when its bytes are: gone, changed, damaged. What the system refuses (permission,
/// too many open files) ends the walk whatever the rule.
class FolderSamples final : public SingleSamples {
 public:
  FolderSamples(ImageFolder folder, std::unique_ptr<const ImageTransform> transform,
      OnBadImage on_bad = OnBadImage::kFail, std::shared_ptr<MemoryBudget> budget = nullptr);

  std::int64_t size() const override { return files_->folder.size(); }
  std::int64_t classes() const override { return files_->folder.classes(); }
  ImageShape shape() const override;
  std::string name(std::int64_t index) const override { return files_->folder.name(index); }
  std::optional<std::int64_t> label(std::int64_t index) const override {
    return files_->folder.label(index);
  }
  SamplesPointer within(std::span<const std::int64_t> indices) const override;

  /// Returns the bad files met so far, by their index, with the reason; by the parts of the folder
  /// too.
  std::map<std::int64_t, std::string> bad() const;

 private:
  std::int64_t read_one(const SampleKey& key, std::span<float> out) const override;
  std::int64_t decode(const SampleKey& key, std::span<float> out) const;
  void read_file(const SampleKey& key, std::span<float> out) const;
  std::int64_t replace(SampleKey key, std::span<float> out) const;
  bool was_decoded(const SampleKey& key, std::span<float> out) const;
  std::int64_t after(std::int64_t index) const;

  // The members that the folder's parts share.
  struct Files {
    ImageFolder folder;
    std::unique_ptr<const ImageTransform> transform;
    OnBadImage on_bad;
    std::optional<DecodedImages> decoded = {};
    std::mutex mutex = {};
    std::map<std::int64_t, std::string> bad = {};
  };
  std::shared_ptr<Files> files_;
  std::optional<std::vector<std::int64_t>> part_;  // ascending; without one all of the folder
};

}  // namespace lockstep::data
