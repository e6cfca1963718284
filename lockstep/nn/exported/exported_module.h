#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "lockstep/formats/export/exported_program.h"
#include "lockstep/nn/models/layers.h"
#include "lockstep/nn/named_state.h"

namespace lockstep::nn {

namespace exported {

struct Code;
class StoredParameters;

/// Turns the wanted outputs for so many samples into what the whole chain returns.
using LastLayer =
    std::function<torch::Tensor(const std::vector<torch::Tensor>& outputs, std::int64_t samples)>;

}  // namespace exported

/// A module of Python that `torch.export` has written, as a module of LibTorch: it has Python's
/// parameters and buffers under Python's names, and trains.
///
/// Tied weights are one tensor of several names; what Python had frozen wants no gradient. Buffers
/// that are not persistent, and constants, are not registered, so that no file of weights has them,
/// but move by to(). Devices that the program names are the module's. train() and eval() work as in
/// Python, also those of the modules in it: see Note [Training and evaluation].
///
/// Replicas made by clone() share all but the tensors, and may run at the same time.
class ExportedModuleImpl : public torch::nn::Module {
 public:
  /// Leaves parameters empty, which takes no memory, if stored_parameters() will give them their
  /// values. Throws DataError for what cannot be run: see load_exported().
  explicit ExportedModuleImpl(const ExportedArchive& archive, bool leaves_parameters_empty = false);

  /// Computes the program's outputs by Python's names, in Python's order. An output that is a
  /// tensor by itself is called `output`; numbers and None that Python returns are left out.
  ///
  /// `inputs` are the tensors among the arguments of Python's forward, in its order. Throws
  /// InvalidArgument if they have not the form that the program was exported for, and in evaluation
  /// of a program that has none.
  NamedTensors forward(std::vector<torch::Tensor> inputs);

  /// Returns the first output, such as the only one.
  torch::Tensor first_output(std::vector<torch::Tensor> inputs);

  /// Returns the names of the inputs.
  const std::vector<std::string>& input_names() const;

  /// Returns the form of the first output in training as the archive has it, sizes that vary as
  /// expressions; nothing if there is no tensor among the outputs.
  const std::optional<ExportedTensor>& first_output_form() const;

  /// Returns the names of the outputs that are tensors of no dimension, in training.
  std::vector<std::string> number_outputs() const;

  /// Finds an input whose first size is a number in the program, of either mode.
  std::optional<std::string> input_of_fixed_batch() const;

  /// Returns whether forward() in this mode writes into an input, as Python's does.
  bool changes_input(std::size_t index) const;

  /// Throws InvalidArgument if the inputs do not have the form that the program of this mode takes.
  void check_inputs(const std::vector<torch::Tensor>& inputs) const;

  /// Throws InvalidArgument, with what to do, if the archive has no program that can be evaluated.
  void check_evaluation() const;

  /// Throws InvalidArgument unless evaluations measure what training learns: where a program
  /// returns the number `loss`, both return the same numbers; elsewhere their first outputs have
  /// one form.
  void check_outputs(const std::string& loss) const;

  /// Throws InvalidArgument, with what to do, for state that only a loop of one's own may have: a
  /// tensor that forward() changes and no file of weights has; batch norms that have been
  /// decomposed, as by run_decompositions(), which SyncBatchNorm and pipelines do not notice.
  void check_state() const;

  /// Puts the channels of the weights of convolutions last in memory, as oneDNN and our kernels
  /// take them fastest; what convolutions return then lies so, too. Results differ from Python's by
  /// rounding. Leaves alone what is not fp32, and programs that read how tensors lie in memory.
  void lay_out_kernels();

  /// Returns the values of parameters that were left empty; else nothing.
  const std::shared_ptr<const exported::StoredParameters>& stored_parameters() const {
    return stored_;
  }

  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Device device, bool non_blocking = false) override;

  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<at::Device>& device = std::nullopt) const override;

  /// Returns the program as a chain of layers that share its tensors, cut as Note [Cutting a
  /// program] says; names are those of modules. `outputs` are the tensors that `last` makes the
  /// chain's result of, the first one if none is named.
  Layers layers(const std::vector<std::string>& outputs, const exported::LastLayer& last) const;

 private:
  ExportedModuleImpl(
      std::shared_ptr<const exported::Code> code, std::vector<torch::Tensor> tensors);

  void register_tensors();
  void register_modules();
  torch::nn::Module& module_at(const std::string& path);
  void convert_unregistered(
      std::optional<torch::Device> device, std::optional<torch::Dtype> dtype, bool non_blocking);
  at::Device device(const std::vector<torch::Tensor>& inputs) const;

  std::shared_ptr<const exported::Code> code_;
  std::shared_ptr<const exported::StoredParameters> stored_;
  std::vector<torch::Tensor> tensors_;       ///< in the order of the code's list
  std::vector<torch::nn::Module*> modules_;  ///< whose modes the code asks for
};
TORCH_MODULE(ExportedModule);

/// Makes a module of a file that Python's `torch.export.save` has written, or `package_pt2` with
/// two programs of one model, `train` and `eval`.
///
/// Throws DataError that names file, node, argument and the line of Python for what cannot be run.
///
///     auto model = lockstep::nn::load_exported("net.pt2");
///     torch::optim::SGD optimizer(model->parameters(), 0.1);
///     auto loss = torch::cross_entropy_loss(model->first_output({images}), labels);
ExportedModule load_exported(
    const std::filesystem::path& path, bool leaves_parameters_empty = false);

}  // namespace lockstep::nn
