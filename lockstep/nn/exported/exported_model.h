#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/nn/exported/exported_module.h"
#include "lockstep/nn/models/around_net.h"
#include "lockstep/nn/models/model.h"

namespace lockstep::nn {

/// An exported program as one of our nets: its first output is the net's, whatever its shape. One
/// with a number `loss` among its outputs computes its loss itself; its other single numbers are
/// numbers().
class ExportedModelImpl final : public AroundNet<ModelImpl, ExportedModule> {
 public:
  /// Reads the file; parameters are left empty if stored_parameters() will give them their values.
  /// Throws InvalidArgument if the program returns no tensor, takes batches of one size only, or
  /// has no evaluation.
  explicit ExportedModelImpl(const std::string& file, bool leaves_parameters_empty = false);

  torch::Tensor forward(torch::Tensor images) override { return forward_all({images}); }

  /// Returns it cut between calls of Python's modules.
  Layers layers() const override;

  std::vector<std::size_t> takes() const override { return {net()->input_names().size()}; }
  std::vector<std::string> input_names() const override { return net()->input_names(); }
  std::optional<std::vector<std::string>> numbers() const override { return numbers_; }

  /// Returns the values of parameters that were left empty; else nothing.
  const std::shared_ptr<const exported::StoredParameters>& stored_parameters() const {
    return net()->stored_parameters();
  }

 private:
  ExportedModelImpl(std::string file, ExportedModule net);

  torch::Tensor forward_all(std::vector<torch::Tensor> inputs) override;
  std::shared_ptr<torch::nn::Module> around(ExportedModule net) const override;
  torch::Tensor row_of_numbers(std::vector<torch::Tensor> inputs);
  std::vector<std::string> names_of_row() const;
  void check_form() const;

  std::string file_;
  std::optional<std::vector<std::string>> numbers_;
};

}  // namespace lockstep::nn
