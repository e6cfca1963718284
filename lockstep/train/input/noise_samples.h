#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "lockstep/data/samples.h"

namespace lockstep {

/// The properties of a set of noise; the same ones make the same numbers everywhere.
struct NoiseOptions {
  std::int64_t size = 0;
  std::int64_t classes = 1;
  data::ImageShape shape = {};
  bool constant = false;
};

/// Noise in place of images, of mean 0 and variance 1, for measuring a model without an input
/// pipeline. Every sample of every epoch is another one, its class drawn too; or, constant, all
/// batches are one, of class 0.
class NoiseSamples final : public data::SingleSamples {
 public:
  explicit NoiseSamples(const NoiseOptions& options) : options_(options) {}

  std::int64_t size() const override { return options_.size; }
  std::int64_t classes() const override { return options_.classes; }
  data::ImageShape shape() const override { return options_.shape; }
  bool is_constant() const override { return options_.constant; }
  std::string name(std::int64_t index) const override;

 private:
  std::int64_t read_one(const data::SampleKey& key, std::span<float> out) const override;

  NoiseOptions options_;
};

}  // namespace lockstep
