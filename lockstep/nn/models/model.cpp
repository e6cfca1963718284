#include "lockstep/nn/models/model.h"

#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/nn/models/resnet.h"
#include "lockstep/nn/models/small_nets.h"
#include "lockstep/nn/models/vgg.h"

namespace lockstep::nn {
namespace {

struct Entry {
  const char* name;
  std::shared_ptr<ModelImpl> (*make)(std::int64_t classes);
};

template <typename Impl>
std::shared_ptr<ModelImpl> make(std::int64_t classes) {
  return std::make_shared<Impl>(classes);
}

template <const ResNetShape& kShape>
std::shared_ptr<ModelImpl> make_resnet(std::int64_t classes) {
  return std::make_shared<ResNetImpl>(kShape, classes);
}

template <const VggShape& kShape>
std::shared_ptr<ModelImpl> make_vgg(std::int64_t classes) {
  return std::make_shared<VggImpl>(kShape, classes);
}

constexpr Entry kModels[] = {
    {"toy", make<ToyImpl>},
    {"mnist-small", make<MnistSmallImpl>},
    {"mnist-large", make<MnistLargeImpl>},
    {"resnet18", make_resnet<kResNet18>},
    {"resnet18-cifar", make_resnet<kResNet18Cifar>},
    {"resnet34", make_resnet<kResNet34>},
    {"resnet50", make_resnet<kResNet50>},
    {"vgg11", make_vgg<kVgg11>},
    {"vgg11-bn", make_vgg<kVgg11Bn>},
    {"vgg13", make_vgg<kVgg13>},
    {"vgg13-bn", make_vgg<kVgg13Bn>},
    {"vgg16", make_vgg<kVgg16>},
    {"vgg16-bn", make_vgg<kVgg16Bn>},
    {"vgg19", make_vgg<kVgg19>},
    {"vgg19-bn", make_vgg<kVgg19Bn>},
};

std::string joined_names() {
  std::string text;
  for (const auto& name : model_names()) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kModels) names.emplace_back(entry.name);
  return names;
}

Model make_model(const std::string& name, std::int64_t classes) {
  check(classes > 0, "make_model: a net needs at least one class: ", classes);
  for (const Entry& entry : kModels) {
    if (name == entry.name) return Model(entry.make(classes));
  }
  throw InvalidArgument(
      concat("make_model: there is no such net: ", name, "; there are ", joined_names()));
}

}  // namespace lockstep::nn
