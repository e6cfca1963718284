#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/types.h>

#include "lockstep/formats/weights/tensor_file.h"
#include "lockstep/nn/named_state.h"

namespace lockstep::nn {

/// The differences between a file of weights and a model, by the model's names.
struct WeightsReport {
  /// A tensor whose shape, or kind of number, is another in the file.
  struct Mismatch {
    std::string name;
    std::vector<std::int64_t> in_model = {}, in_file = {};
    std::string type_in_model = {}, type_in_file = {};
  };

  /// A tensor that the file holds in another precision.
  struct Conversion {
    std::string name, from, to;
  };

  std::int64_t loaded = 0;              ///< tensors that the model took
  std::string prefix;                   ///< was taken off every name of the file
  std::string lacking;                  ///< was put before every name of the file
  std::vector<std::string> missing;     ///< the model has them, the file does not
  std::vector<std::string> unexpected;  ///< the file has them, the model does not
  std::vector<std::string> constants;   ///< the file has them, the model computes them
  std::vector<std::string> untied;  ///< `a, b`: one tensor in the model, which differ in the file
  std::vector<Mismatch> mismatched;
  std::vector<Conversion> converted;    ///< rounded or widened to the model's type
  std::vector<std::string> not_finite;  ///< hold NaN or Inf now, perhaps by the conversion
  std::vector<Mismatch> kept;           ///< kept the model's own values, as was allowed

  /// Returns whether the model took all that it has, but for what it was allowed to keep.
  bool fits() const {
    return missing.empty() && unexpected.empty() && untied.empty() && mismatched.empty();
  }
};

/// Lists the first ten missing, unexpected and mismatched tensors, a line each, and counts the
/// others; nothing if the file fits.
std::string differences_text(const WeightsReport& report);

/// Lists what may surprise the caller, at most ten lines of a kind: a removed prefix, kept values,
/// converted types, NaN. Nothing if the file was taken as it is.
std::string remarks_text(const WeightsReport& report);

/// The differences between file and model that are allowed.
struct LoadWeightsOptions {
  /// Names tensors that keep the model's values where those of the file have another first
  /// dimension: weight and bias of a head with another number of classes. The report lists them.
  std::vector<std::string> resizable = {};
  /// Takes a part of the file: `state_dict` of `{"state_dict": {...}, "epoch": 3}`.
  std::string only = {};
  /// Takes tensors that are some of a model's: the file may have others.
  bool is_part = false;
  /// Says what loading would, and leaves the tensors as they are.
  bool is_rehearsal = false;
};

/// Copies the weights of a safetensors or PyTorch file into the module's parameters and buffers, by
/// name, whatever their memory format and whether they want gradients.
///
/// Nothing is reshaped and nothing left out: a missing, unexpected or mismatched tensor is a
/// DataError that lists the first of them, and the module is as it was. Two things are accepted and
/// reported: floating-point numbers of another width are converted, and `module.` and `_orig_mod.`,
/// which Python's DDP and torch.compile put before every name, are taken off. A prefix of all names
/// of the model, such as `transformer.`, may be missing in all of the file, as in one of the net
/// without its head; and causal masks and RoPE's frequencies, which some files of transformers
/// have, are left out: both are reported. Tied weights need one of their names in the file; where
/// they have more, they must be equal there. A `num_batches_tracked` that the file lacks, as those
/// of PyTorch before 0.4.1 do, keeps its value and is reported too; one of int64 fits a module
/// whose LibTorch's to(torch::kDouble) made a double of it, and the other way round. A file that
/// another program changes meanwhile is a DataError; some tensors may then have been copied.
///
///     auto model = make_model("resnet50", 20);
///     load_weights(*model, "resnet50.pth", {.resizable = {"fc.weight", "fc.bias"}});
WeightsReport load_weights(torch::nn::Module& module, const std::filesystem::path& path,
    const LoadWeightsOptions& options = {});

/// Does the same for tensors that have their names already, on whatever device; a refusal does not
/// advise to name a new head as resizable.
WeightsReport load_weights(const NamedTensors& state, const std::filesystem::path& path,
    const LoadWeightsOptions& options = {});

/// Does the same with what read_weights() has made of a file; `name` stands in messages.
WeightsReport load_weights(const NamedTensors& state, const TensorFile& file,
    const std::string& name, const LoadWeightsOptions& options = {});

/// Writes the module's parameters and buffers, by Python's names in Python's order, row-major
/// whatever their memory format: `.safetensors`, or `.pt`, `.pth`, `.bin` for Python's torch.load.
///
/// The file is complete or not there. Throws InvalidArgument for another extension.
void save_weights(const torch::nn::Module& module, const std::filesystem::path& path,
    const std::map<std::string, std::string>& metadata = {});

/// Does the same for tensors that have their names already.
void save_weights(const NamedTensors& state, const std::filesystem::path& path,
    const std::map<std::string, std::string>& metadata = {});

/// Copies a tensor of a file; its type must be one that LibTorch has.
torch::Tensor tensor_of(const TensorEntry& entry);

/// Returns LibTorch's name of a file's element type; nothing for one that LibTorch does not have.
std::optional<torch::ScalarType> scalar_type_of(ElementType type);

/// Returns the element type in which a file holds a tensor; nothing if it cannot.
std::optional<ElementType> element_type_of(torch::ScalarType type);

}  // namespace lockstep::nn
