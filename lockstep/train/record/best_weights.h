#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "lockstep/nn/named_state.h"

namespace lockstep {

/// The file of the best epoch's weights. What a full disk does not take stays in memory and is
/// tried again, so that training goes on.
class BestWeights {
 public:
  using Metadata = std::map<std::string, std::string>;

  explicit BestWeights(std::filesystem::path file) : file_(std::move(file)) {}

  const std::filesystem::path& file() const { return file_; }

  /// Writes these weights, or keeps a copy of them. Gives the reason why it could not write; empty:
  /// it did.
  std::string save(const nn::NamedTensors& weights, const Metadata& metadata);

  /// Returns whether what was saved last, by this start or another one, has this metadata.
  bool holds(const Metadata& metadata) const;

  /// Copies what was saved last into tensors of its names, all of them. Throws DataError unless it
  /// has this metadata and fits.
  void load(const nn::NamedTensors& into, const Metadata& metadata) const;

  /// Writes what was kept, if anything. Throws std::system_error when the disk still does not take
  /// it.
  void finish();

 private:
  struct Kept {
    nn::NamedTensors weights;
    Metadata metadata;
  };

  std::filesystem::path file_;
  std::optional<Kept> kept_;
};

}  // namespace lockstep
