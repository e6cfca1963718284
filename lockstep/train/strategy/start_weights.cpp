#include "lockstep/train/strategy/start_weights.h"

#include <algorithm>
#include <fnmatch.h>
#include <typeinfo>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/core/error.h"
#include "lockstep/device/parameters.h"
#include "lockstep/formats/weights/tensor_file.h"
#include "lockstep/formats/weights/torch_file.h"
#include "lockstep/formats/weights/weight_file.h"
#include "lockstep/nn/exported/exported_model.h"
#include "lockstep/nn/exported/stored_parameters.h"
#include "lockstep/nn/models/language/language_layers.h"
#include "lockstep/nn/weights.h"
#include "lockstep/parallel/ddp/replicated_state.h"

namespace lockstep {
namespace {

// The layer that gives the scores.
std::string head_of(const torch::nn::Module& model) {
  std::string head;
  for (const auto& item : model.named_modules()) {
    if (item.value()->as<torch::nn::Linear>() != nullptr) head = item.key();
  }
  return head;
}

// Of a language model the last layer's weight is the embedding's, and of an exported one the
// outputs are settled.
std::vector<std::string> resizable_tensors(const nn::Model& model, const std::string& name) {
  if (nn::net_needs(name).context > 0 || nn::is_exported(name)) return {};
  const std::string head = head_of(*model);
  return {head + ".weight", head + ".bias"};
}

TensorFile read_pretrained(const std::string& path) {
  try {
    return read_weights(path);
  } catch (const MixedContent& error) {
    const std::string command = concat("lockstep convert ", path, " weights.safetensors --only");
    throw DataError(
        concat("train: --pretrained ", path, " holds more than weights; ", error.advice(command)));
  }
}

void load_pretrained(nn::Model& model, const TrainOptions& options, StartWeights& start) {
  const std::string& path = options.pretrained;
  const TensorFile file = read_pretrained(path);
  const bool is_later = is_initialised_later(options);
  const nn::WeightsReport report = nn::load_weights(nn::named_state(*model), file, path,
      {.resizable = resizable_tensors(model, options.model), .is_rehearsal = is_later});
  if (is_later) {
    // Every rank has all buffers. What is given later is of the file that was looked at here.
    nn::load_weights(model->named_buffers(), file, path, {.is_part = true});
    file.forget();
    start.init = [file, path](const NamedTensors& some) {
      nn::NamedTensors wanted("Tensor");
      for (const auto& [name, parameter] : some) wanted.insert(name, parameter);
      nn::load_weights(wanted, file, path, {.is_part = true});
      file.forget();
    };
  }
  start.remark = concat(report.loaded, " tensors from ", path);
  const std::string remarks = remarks_text(report);
  if (remarks.empty()) return;
  start.warning = concat("weights of ", path, ":\n", remarks);
  start.warning.pop_back();  // the last line's end
}

// What the optimizer would refuse in the first step, or the first snapshot.
void check_parameters(const torch::nn::Module& model, const TrainOptions& options) {
  const bool adds_up = options.parallel == Parallel::kDdp || options.parallel == Parallel::kFsdp ||
                       is_replicated_stages(options.parallel);
  for (const auto& item : nn::named_state(model)) {
    const auto type = nn::element_type_of(item.value().scalar_type());
    check(type && safetensors_name(*type), "train: ", item.key(), " is of ",
        item.value().scalar_type(), ", a type that files of weights do not have; make it another");
    check(item.value().layout() == torch::kStrided, "train: ", item.key(), " is of layout ",
        item.value().layout(), ", which files of weights do not have; make it dense");
    check(!item.value().is_complex() || !adds_up, "train: ", item.key(), " is of ",
        item.value().scalar_type(), ", which --parallel ", name_of(options.parallel),
        " cannot add up over ranks; train by serial or dp, or keep torch::view_as_real() of it");
  }
  const OptimizerSettings& optimizer = options.optimizer;
  const bool is_saved = options.snapshots.unit != SnapshotUnit::kNever;
  const bool takes_sparse = optimizer.kind == OptimizerKind::kSgd && optimizer.weight_decay == 0 &&
                            (optimizer.momentum == 0 || !is_saved);
  ReplicatedState all;
  all.add(model);
  for (const auto& [name, parameter] : all.parameters) {
    check(takes_sparse || !parameter.requires_grad() || !all.sparse.contains(name),
        "train: the gradients of ", name,
        " are sparse, which take --opt sgd --momentum 0 --weight-decay 0; train by that, or make "
        "the embedding without sparse(true)");
  }
}

bool matches(const std::string& pattern, const std::string& name) {
  return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

// `conv1.*, bn1.*, layer1.*`: what the names begin with.
std::string beginnings(const torch::nn::Module& module) {
  std::string text, last;
  for (const auto& name : module.named_parameters().keys()) {
    const std::string first = name.substr(0, name.find('.'));
    if (first == last) continue;
    text += (text.empty() ? "" : ", ") + first + ".*";
    last = first;
  }
  return text;
}

// The layers of an exported program have no type of their own.
bool is_batch_norm(const torch::nn::Module& module) {
  return (typeid(module) == typeid(torch::nn::Module) &&
             module.named_buffers(false).contains("running_mean")) ||
         module.as<torch::nn::BatchNorm1d>() != nullptr ||
         module.as<torch::nn::BatchNorm2d>() != nullptr ||
         module.as<torch::nn::BatchNorm3d>() != nullptr;
}

bool is_frozen(const torch::nn::Module& module) {
  const auto parameters = module.parameters();
  return !parameters.empty() && std::ranges::none_of(parameters, [](const auto& parameter) {
    return parameter.requires_grad();
  });
}

void check_all_match(const torch::nn::Module& module, const std::vector<std::string>& patterns) {
  const auto names = module.named_parameters().keys();
  for (const auto& pattern : patterns) {
    const auto is_meant = [&](const std::string& name) { return matches(pattern, name); };
    check(std::ranges::any_of(names, is_meant), "train: --freeze matches no parameter: ", pattern,
        "; their names are ", beginnings(module), ", such as ", names.front());
  }
}

}  // namespace

StartWeights start_with(nn::Model& model, const TrainOptions& options) {
  StartWeights start;
  if (!options.pretrained.empty()) load_pretrained(model, options, start);
  if (!options.freeze.empty()) {
    start.frozen = freeze(*model, options.freeze);
    start.remark += concat(start.remark.empty() ? "" : "; ", "frozen: ", start.frozen.parameters,
        " of ", parameters_of(*model).size(), " parameters (", start.frozen.elements,
        " numbers) and the statistics of ", start.frozen.norms.size(), " batch norms");
  }
  check_parameters(*model, options);
  return start;
}

bool is_initialised_later(const TrainOptions& options) {
  return options.parallel == Parallel::kFsdp && options.plugin_task.empty() &&
         (nn::net_needs(options.model).context > 0 || nn::is_exported(options.model));
}

InitFunction init_later(const nn::Model& model, const at::Generator& generator) {
  if (const auto* exported = dynamic_cast<const nn::ExportedModelImpl*>(&*model)) {
    return [stored = exported->stored_parameters()](const NamedTensors& some) {
      for (const auto& [name, parameter] : some) stored->copy_to(parameter, name);
    };
  }
  const auto& net = dynamic_cast<const nn::LanguageModelImpl&>(*model);
  return [draw = net.draws(generator)](const NamedTensors& some) {
    for (const auto& [name, parameter] : some) draw(parameter);
  };
}

Frozen freeze(torch::nn::Module& module, const std::vector<std::string>& patterns) {
  check_all_match(module, patterns);
  std::vector<torch::Tensor> meant;
  for (auto& item : module.named_parameters()) {
    const auto is_meant = [&](const std::string& pattern) { return matches(pattern, item.key()); };
    if (std::ranges::any_of(patterns, is_meant)) meant.push_back(item.value());
  }
  Frozen frozen;
  for (torch::Tensor& parameter : meant = distinct(meant)) {
    parameter.set_requires_grad(false);
    ++frozen.parameters;
    frozen.elements += parameter.numel();
  }
  check(!is_frozen(module), "train: --freeze leaves no parameter to train");
  for (const auto& layer : module.modules(/*include_self=*/false)) {
    if (is_batch_norm(*layer) && is_frozen(*layer)) frozen.norms.push_back(layer);
  }
  return frozen;
}

void keep_in_evaluation(const Frozen& frozen) {
  for (const auto& norm : frozen.norms) norm->eval();
}

}  // namespace lockstep
