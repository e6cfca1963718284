#pragma once

#include <memory>

#include "lockstep/data/pixel_scale.h"
#include "lockstep/data/samples.h"

namespace lockstep::data {

/// Gives images in memory as they are, scaled: a whole batch in one pass.
class StoredSamples final : public Samples {
 public:
  explicit StoredSamples(InMemoryImages images, const Normalization& normalization = {});

  std::int64_t size() const override { return images_.size(); }
  std::int64_t classes() const override { return images_.classes(); }
  ImageShape shape() const override { return images_.shape(); }
  std::string name(std::int64_t index) const override;
  void read(std::span<const SampleKey> keys, const Batch& out) const override;

 private:
  InMemoryImages images_;
  PixelScale scale_;
};

/// Gives images in memory, each through a transform: its own look in every epoch.
class TransformedSamples final : public SingleSamples {
 public:
  TransformedSamples(InMemoryImages images, std::unique_ptr<const ImageTransform> transform);

  std::int64_t size() const override { return images_.size(); }
  std::int64_t classes() const override { return images_.classes(); }
  ImageShape shape() const override;
  std::string name(std::int64_t index) const override;

 private:
  std::int64_t read_one(const SampleKey& key, std::span<float> out) const override;

  InMemoryImages images_;
  std::unique_ptr<const ImageTransform> transform_;
};

}  // namespace lockstep::data
