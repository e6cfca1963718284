#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::nn {

/// Is how a file of weights and a model differ, by the model's names.
struct WeightsReport {
  /// Is a tensor whose shape, or kind of number, is another in the file.
  struct Mismatch {
    std::string name;
    std::vector<std::int64_t> in_model = {}, in_file = {};
    std::string type_in_model = {}, type_in_file = {};
  };

  /// Is a tensor that the file holds in another precision.
  struct Conversion {
    std::string name, from, to;
  };

  std::int64_t loaded = 0;              ///< tensors that the model took
  std::string prefix;                   ///< was taken off every name of the file
  std::vector<std::string> missing;     ///< the model has them, the file does not
  std::vector<std::string> unexpected;  ///< the file has them, the model does not
  std::vector<Mismatch> mismatched;
  std::vector<Conversion> converted;    ///< rounded or widened to the model's type
  std::vector<std::string> not_finite;  ///< hold NaN or Inf, and were taken all the same
  std::vector<Mismatch> kept;           ///< kept the model's own values, as was allowed

  /// Says whether the model took all that it has, but for what it was allowed to keep.
  bool fits() const { return missing.empty() && unexpected.empty() && mismatched.empty(); }
};

/// Lists every missing, unexpected and mismatched tensor, a line each; nothing if the file fits.
std::string differences_text(const WeightsReport& report);

/// Says what was done that the caller may not expect, a line each: a prefix taken off, values kept,
/// types converted, NaN met. Nothing if the file was taken as it is.
std::string remarks_text(const WeightsReport& report);

}  // namespace lockstep::nn
