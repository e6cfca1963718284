#pragma once

#include <map>
#include <string>

#include <torch/types.h>

#include "lockstep/formats/export/exported_program.h"

namespace lockstep::nn::exported {

/// The values of an archive's parameters, which stay in the file until they are asked for: so a
/// model can be made that no process could hold.
class StoredParameters {
 public:
  explicit StoredParameters(const ExportedArchive& archive);

  /// Gives a parameter its values by one of its names. Throws DataError if the file has changed
  /// since it was read.
  void copy_to(const torch::Tensor& parameter, const std::string& name) const;

 private:
  std::map<std::string, TensorEntry> entries_;
  FileMemory memory_;
};

}  // namespace lockstep::nn::exported
