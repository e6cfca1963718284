#include "lockstep/nn/models/model.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <tuple>
#include <typeinfo>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/max_pool2d.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/pimpl.h>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/nn/exported/exported_model.h"
#include "lockstep/nn/fused/conv_relu_pool.h"
#include "lockstep/nn/models/language/gpt2.h"
#include "lockstep/nn/models/language/llama.h"
#include "lockstep/nn/models/plugin_library.h"
#include "lockstep/nn/models/row_linear.h"
#include "lockstep/nn/models/torchvision.h"
#include "lockstep/nn/named_state.h"

namespace lockstep::nn {
namespace {

void check_alike(bool alike, const std::string& what) {
  if (alike) return;
  throw Error(concat("clone: the module differs from what its constructor makes: ", what,
      "; clone it before it is changed"));
}

torch::Tensor own_copy(const torch::Tensor& tensor, const std::optional<at::Device>& device) {
  return device ? tensor.detach().to(*device, tensor.scalar_type(), false, true)
                : tensor.detach().clone();
}

void copy_tensors(
    const NamedTensors& source, NamedTensors target, const std::optional<at::Device>& device) {
  check_alike(source.keys() == target.keys(), "other names of parameters or buffers");
  for (const auto& item : source) {
    torch::Tensor& tensor = target[item.key()];
    tensor.set_data(own_copy(item.value(), device));
    tensor.requires_grad_(item.value().requires_grad());
  }
}

// A converter may have replaced one of our modules.
void copy_training(const torch::nn::Module& source, torch::nn::Module& target) {
  check_alike(typeid(source) == typeid(target), source.name());
  target.train(source.is_training());
  const auto from = source.children(), to = target.children();
  check_alike(from.size() == to.size(), source.name());
  for (std::size_t i = 0; i < from.size(); ++i) copy_training(*from[i], *to[i]);
}

}  // namespace

void copy_state(const torch::nn::Module& source, torch::nn::Module& target,
    const std::optional<at::Device>& device) {
  const at::NoGradGuard no_grad;
  copy_tensors(source.named_parameters(), target.named_parameters(), device);
  copy_tensors(source.named_buffers(), target.named_buffers(), device);
  copy_training(source, target);
}

namespace {

torch::Tensor checked_images(torch::Tensor images) {
  check(images.dim() == 4 && images.size(1) == 1 && images.size(2) == 28 && images.size(3) == 28,
      "mnist net: takes images of [N, 1, 28, 28], not ", images.sizes());
  return images;
}

torch::Tensor checked_rows(torch::Tensor features) {
  check(features.dim() >= 2, "toy: takes [N, 10], not ", features.sizes());
  auto rows = features.flatten(1);
  check(rows.size(1) == 10, "toy: takes [N, 10], not ", features.sizes());
  return rows;
}

/// A 3x3 convolution with padding 1, ReLU and a pool of 2 as one layer, [N, inputs, H, W] to
/// [N, outputs, H/2, W/2]; with one input channel one fused kernel.
///
/// A Conv2d, so that `weight` and `bias` are its own and Python's names come out.
class MnistBlockImpl final : public torch::nn::Conv2dImpl {
 public:
  MnistBlockImpl(std::int64_t inputs, std::int64_t outputs)
      : Conv2dImpl(torch::nn::Conv2dOptions(inputs, outputs, 3).padding(1)) {
    // oneDNN computes channels-last convolutions without reordering their weights at every step.
    if (inputs > 1) weight.set_data(weight.contiguous(at::MemoryFormat::ChannelsLast));
  }

  torch::Tensor forward(const torch::Tensor& images) {
    if (options.in_channels() == 1) return fused::conv_relu_pool(images, weight, bias);
    const auto maps = Conv2dImpl::forward(images.contiguous(at::MemoryFormat::ChannelsLast));
    return at::max_pool2d(maps.relu_(), {2, 2});
  }

  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<at::Device>& device = std::nullopt) const override {
    auto copy = std::make_shared<MnistBlockImpl>(options.in_channels(), options.out_channels());
    copy_state(*this, *copy, device);
    return copy;
  }
};
TORCH_MODULE(MnistBlock);

/// A net that the number of classes alone makes.
template <typename Net>
class NetOfClasses : public CloneByArguments<Net, ModelImpl> {
 public:
  explicit NetOfClasses(std::int64_t classes) : classes_(classes) {}
  std::tuple<std::int64_t> arguments() const { return {classes_}; }

 private:
  std::int64_t classes_;
};

/// The study's small net, 402,442 parameters with 10 classes. Takes [N, 1, 28, 28].
///
///     0 conv 1-32 3x3 padding 1, ReLU, pool 2   3 flatten   4 linear 6272-64, 5 ReLU   6 linear
///     64-classes
///
/// Its layers: input and those numbers.
class MnistSmallImpl final : public NetOfClasses<MnistSmallImpl> {
 public:
  explicit MnistSmallImpl(std::int64_t classes) : NetOfClasses(classes) {
    append("input", layer_of(checked_images));
    append_module("0", MnistBlock(1, 32));
    append("3", layer_of(flatten_layer));
    append_module("4", RowLinear(6272, 64));
    append("5", layer_of(relu_layer));
    append_module("6", RowLinear(64, classes));
  }
};

/// The study's large net, 4,104,202 parameters with 10 classes. Takes [N, 1, 28, 28].
///
///     0, 3, 6 conv 1-128-256-512 3x3 padding 1, each with ReLU and pool 2   9 flatten
///     10 linear 4608-512, 11 ReLU   12 linear 512-512, 13 ReLU   14 linear 512-classes
///
/// Its layers: input and those numbers.
class MnistLargeImpl final : public NetOfClasses<MnistLargeImpl> {
 public:
  explicit MnistLargeImpl(std::int64_t classes) : NetOfClasses(classes) {
    append("input", layer_of(checked_images));
    append_module("0", MnistBlock(1, 128));
    append_module("3", MnistBlock(128, 256));
    append_module("6", MnistBlock(256, 512));
    append("9", layer_of(flatten_layer));
    append_module("10", RowLinear(4608, 512));
    append("11", layer_of(relu_layer));
    append_module("12", RowLinear(512, 512));
    append("13", layer_of(relu_layer));
    append_module("14", RowLinear(512, classes));
  }
};

/// The net of PyTorch's DDP tutorial: linear 10-10, ReLU, linear 10-classes (5 there).
///
/// Takes [N, 10] or anything that flattens to it. Its layers: input, net1, relu, net2.
class ToyImpl final : public NetOfClasses<ToyImpl> {
 public:
  explicit ToyImpl(std::int64_t classes) : NetOfClasses(classes) {
    append("input", layer_of(checked_rows));
    append_module("net1", RowLinear(10, 10));
    append("relu", layer_of(relu_layer));
    append_module("net2", RowLinear(10, classes));
  }
};

template <typename Impl>
std::shared_ptr<ModelImpl> make(std::int64_t classes) {
  return std::make_shared<Impl>(classes);
}

constexpr std::shared_ptr<ModelImpl> (*kMakeSmallNets[])(std::int64_t classes) = {
    make<ToyImpl>, make<MnistSmallImpl>, make<MnistLargeImpl>};
static_assert(std::size(kMakeSmallNets) == std::size(kSmallNets));

std::shared_ptr<ModelImpl> drawn(
    std::shared_ptr<LanguageModelImpl> net, const NetSettings& settings) {
  if (!settings.is_filled_later) net->draw();
  return net;
}

std::string about_weights(const std::string& name) {
  const bool are_weights =
      name.ends_with(".pt") || name.ends_with(".pth") || name.ends_with(".safetensors");
  return are_weights ? "; such a file is taken as weights, by --pretrained; Python's "
                       "lockstep.export() writes a net as .pt2"
                     : "";
}

std::shared_ptr<ModelImpl> made(
    const std::string& name, std::int64_t classes, const NetSettings& settings) {
  if (is_exported(name)) return std::make_shared<ExportedModelImpl>(name, settings.is_filled_later);
  const auto* small = std::ranges::find(kSmallNets, name);
  if (small != std::end(kSmallNets)) return kMakeSmallNets[small - kSmallNets](classes);
  const auto* resnet = std::ranges::find(kResNets, name, &ResNetShape::name);
  if (resnet != std::end(kResNets)) return std::make_shared<ResNetImpl>(*resnet, classes);
  const auto* vgg = std::ranges::find(kVggs, name, &VggShape::name);
  if (vgg != std::end(kVggs)) return std::make_shared<VggImpl>(*vgg, classes);
  const auto* gpt2 = std::ranges::find(kGpt2s, name, &Gpt2Shape::name);
  if (gpt2 != std::end(kGpt2s))
    return drawn(std::make_shared<Gpt2Impl>(*gpt2, classes, settings.dropout), settings);
  const auto* llama = std::ranges::find(kLlamas, name, &LlamaShape::name);
  if (llama != std::end(kLlamas))
    return drawn(std::make_shared<LlamaImpl>(*llama, classes, settings.dropout), settings);
  const auto plugin = std::ranges::find(plugin_models(), name, &PluginModel::name);
  if (plugin != plugin_models().end()) return std::make_shared<PluginModelImpl>(*plugin, classes);
  auto names = model_names();
  for (const PluginModel& model : plugin_models()) names.push_back(model.name);
  throw InvalidArgument(
      concat("make_model: there is no such net: ", name, "; there are ", joined(names),
          ", and files *.pt2 of torch.export", about_weights(name), did_you_mean(name, names)));
}

}  // namespace

torch::Tensor ModelImpl::forward_all(std::vector<torch::Tensor> inputs) {
  check(inputs.size() == 1, name(), ": takes one tensor, not ", inputs.size());
  return forward(std::move(inputs.front()));
}

Model make_model(const std::string& name, std::int64_t classes, const NetSettings& settings) {
  check(classes > 0, "make_model: a net needs at least one class: ", classes);
  check(settings.dropout >= 0 && settings.dropout < 1,
      "make_model: dropout must be at least 0 and below 1: ", settings.dropout);
  check(settings.dropout == 0 || net_needs(name).context > 0, "make_model: the dropout of ", name,
      " cannot be set; language models have that setting");
  return Model(made(name, classes, settings));
}

}  // namespace lockstep::nn
