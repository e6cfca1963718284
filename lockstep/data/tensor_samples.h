#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/samples.h"
#include "lockstep/data/tensor_table.h"

namespace lockstep::data {

/// The rows of a table as samples: inputs and targets have the names of its columns.
///
/// The files are mapped, so a row is read when its turn comes. One that was changed since it was
/// opened is a DataError.
class TensorSamples final : public Samples {
 public:
  /// `classes` are those of TensorTables.
  TensorSamples(TensorTable table, std::int64_t classes);

  std::int64_t size() const override { return table_.rows(); }
  std::int64_t classes() const override { return classes_; }
  ImageShape shape() const override;
  std::vector<TensorForm> inputs() const override;
  std::vector<TensorForm> targets() const override;
  std::string name(std::int64_t index) const override;
  std::optional<std::int64_t> label(std::int64_t index) const override;
  void read(std::span<const SampleKey> keys, const Batch& out) const override;

 private:
  TensorTable table_;
  std::int64_t classes_;
};

}  // namespace lockstep::data
