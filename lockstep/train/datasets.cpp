#include "lockstep/train/datasets.h"

#include "lockstep/core/error.h"
#include "lockstep/data/mnist.h"
#include "lockstep/data/mock.h"

namespace lockstep {
namespace {

// Repeats the one batch until an epoch is about as long as one of MNIST.
constexpr std::int64_t kMockRepetitions = 234;

// What the model takes: ImageNet's images for the ResNets, CIFAR's for their small relatives.
data::MockOptions mock_options(const std::string& model) {
  if (model == "toy") return {.shape = {.channels = 1, .height = 1, .width = 10}};
  if (model.ends_with("-cifar")) return {.shape = {.channels = 3, .height = 32, .width = 32}};
  if (model.starts_with("resnet"))
    return {.size = 128, .shape = {.channels = 3, .height = 224, .width = 224}};
  return {};
}

data::InMemoryImages mock_batch(const std::string& model) {
  return data::mock(mock_options(model));
}

Datasets read(const DataSource& source, const std::string& model) {
  if (source.name == "fashion-mnist") {
    const auto folder =
        source.directory.empty() ? std::string(data::kFashionMnistDirectory) : source.directory;
    return {.train = data::fashion_mnist(folder, true), .test = data::fashion_mnist(folder, false)};
  }
  if (source.name == "mnist") {
    check(!source.directory.empty(), "train: --data mnist needs a folder: --data mnist:DIR");
    return {
        .train = data::mnist(source.directory, true), .test = data::mnist(source.directory, false)};
  }
  check(
      source.name == "mock",
      "train: --data must be one of fashion-mnist, mnist, mock: ",
      source.name);
  check(source.directory.empty(), "train: --data mock has no folder: ", source.directory);
  return {.train = mock_batch(model).repeated(kMockRepetitions), .test = mock_batch(model)};
}

}  // namespace

Datasets load_datasets(const DataSource& source, std::int64_t repeat, const std::string& model) {
  const Datasets sets = read(source, model);
  return {.train = sets.train.repeated(repeat), .test = sets.test};
}

}  // namespace lockstep
