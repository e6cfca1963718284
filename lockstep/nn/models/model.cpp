#include "lockstep/nn/models/model.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/nn/models/plugin_library.h"
#include "lockstep/nn/models/plugin_model.h"
#include "lockstep/nn/models/resnet.h"
#include "lockstep/nn/models/small_nets.h"
#include "lockstep/nn/models/vgg.h"

namespace lockstep::nn {
namespace {

template <typename Impl>
std::shared_ptr<ModelImpl> make(std::int64_t classes) {
  return std::make_shared<Impl>(classes);
}

constexpr std::shared_ptr<ModelImpl> (*kMakeSmallNets[])(std::int64_t classes) = {
    make<ToyImpl>, make<MnistSmallImpl>, make<MnistLargeImpl>};
static_assert(std::size(kMakeSmallNets) == std::size(kSmallNets));

std::shared_ptr<ModelImpl> made(const std::string& name, std::int64_t classes) {
  const auto* small = std::ranges::find(kSmallNets, name);
  if (small != std::end(kSmallNets)) return kMakeSmallNets[small - kSmallNets](classes);
  const auto* resnet = std::ranges::find(kResNets, name, &ResNetShape::name);
  if (resnet != std::end(kResNets)) return std::make_shared<ResNetImpl>(*resnet, classes);
  const auto* vgg = std::ranges::find(kVggs, name, &VggShape::name);
  if (vgg != std::end(kVggs)) return std::make_shared<VggImpl>(*vgg, classes);
  const auto plugin = std::ranges::find(plugin_models(), name, &PluginModel::name);
  if (plugin != plugin_models().end()) return std::make_shared<PluginModelImpl>(*plugin, classes);
  auto names = model_names();
  for (const PluginModel& model : plugin_models()) names.push_back(model.name);
  throw InvalidArgument(
      concat("make_model: there is no such net: ", name, "; there are ", joined(names)));
}

}  // namespace

torch::Tensor ModelImpl::forward_all(std::vector<torch::Tensor> inputs) {
  check(inputs.size() == 1, name(), ": takes one tensor, not ", inputs.size());
  return forward(std::move(inputs.front()));
}

Model make_model(const std::string& name, std::int64_t classes) {
  check(classes > 0, "make_model: a net needs at least one class: ", classes);
  return Model(made(name, classes));
}

}  // namespace lockstep::nn
