// The case W9 of the conformance list, and that files do not depend on how tensors lie in
// memory. What Python reads and writes is tried in tests/round_trip.

#include "lockstep/nn/weights.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/nn/model_inputs.h"
#include "tests/nn/weights_fixture.h"
#include "tests/support/message_of.h"
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include "lockstep/core/error.h"
#include "lockstep/formats/weights/weight_file.h"
#include "lockstep/nn/models/model.h"

namespace lockstep::nn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(Weights, AreListedInPythonsOrderW9) {
  const auto keys = named_state(*make_model("resnet18", 3)).keys();
  EXPECT_EQ(keys.size(), 122U);
  EXPECT_THAT((std::vector<std::string>(keys.begin(), keys.begin() + 8)),
      ElementsAre("conv1.weight", "bn1.weight", "bn1.bias", "bn1.running_mean", "bn1.running_var",
          "bn1.num_batches_tracked", "layer1.0.conv1.weight", "layer1.0.bn1.weight"));
  EXPECT_THAT(
      (std::vector<std::string>(keys.end() - 2, keys.end())), ElementsAre("fc.weight", "fc.bias"));
}

TEST_F(Weights, OfAChainAreThoseOfTheModel) {
  for (const auto& name : {"toy", "mnist-small", "resnet18-cifar"}) {
    const auto model = make_model(name, 3);
    const auto whole = named_state(*model), chain = named_state(model->layers());
    ASSERT_EQ(chain.keys(), whole.keys()) << name;
    for (const auto& item : chain) EXPECT_TRUE(item.value().is_same(whole[item.key()]));
  }
}

TEST_F(Weights, ComeBackBitForBitFromBothFormats) {
  for (const char* name : {"w.safetensors", "w.pt"}) {
    auto saved = make_model("resnet18-cifar", 4), loaded = make_model("resnet18-cifar", 4);
    saved(images_for("resnet18-cifar", 4));  // running statistics that are not those of the start
    save_weights(*saved, file(name));
    const auto report = load_weights(*loaded, file(name));
    EXPECT_EQ(report.loaded, 122);
    EXPECT_EQ(remarks_text(report), "");
    expect_equal_state(*loaded, named_state(*saved));
  }
}

// Ours are channels-last; a file says nothing of it.
TEST_F(Weights, DoNotDependOnTheMemoryFormat) {
  auto last = make_model("resnet18-cifar", 4);
  NamedTensors first("Tensor");
  for (const auto& item : named_state(*last)) {
    first.insert(item.key(), item.value().detach().contiguous());
  }
  save_weights(*last, file("last.safetensors"));
  save_weights(first, file("first.safetensors"));
  const auto bytes = [&](const char* name) {
    const TensorFile weights = read_weights(file(name));
    const auto found = weights.find("layer1.0.conv1.weight")->bytes;
    return std::vector<std::uint8_t>(found.begin(), found.end());
  };
  EXPECT_EQ(bytes("last.safetensors"), bytes("first.safetensors"));
  auto loaded = make_model("resnet18-cifar", 4);
  load_weights(*loaded, file("first.safetensors"));
  for (const auto& item : loaded->named_parameters()) {
    if (item.value().dim() != 4) continue;
    EXPECT_TRUE(item.value().is_contiguous(at::MemoryFormat::ChannelsLast)) << item.key();
  }
  expect_equal_state(*loaded, first);
}

TEST_F(Weights, LeaveParametersWhatTheyAre) {
  auto model = make_model("toy", 5);
  const auto path = written(copies(named_state(*model)));
  model->parameters()[0].requires_grad_(false);
  const auto before = named_state(*model);
  load_weights(*model, path);
  for (const auto& item : named_state(*model)) {
    EXPECT_TRUE(item.value().is_same(before[item.key()]));
    EXPECT_TRUE(item.value().is_leaf());
  }
  EXPECT_FALSE(model->parameters()[0].requires_grad());
  EXPECT_TRUE(model->parameters()[1].requires_grad());
}

TEST_F(Weights, OfPythonsDdpLoseTheirPrefixW9) {
  auto saved = make_model("toy", 5), model = make_model("toy", 5);
  const auto report = load_weights(*model, written(copies(named_state(*saved), "module.")));
  EXPECT_EQ(remarks_text(report), "  took 'module.' off every name\n");
  expect_equal_state(*model, named_state(*saved));
}

TEST_F(Weights, OfAChildCalledModuleKeepTheirNames) {
  torch::nn::Sequential model;
  model->push_back("module", torch::nn::Linear(2, 3));
  const auto report = load_weights(*model, written(copies(named_state(*model))));
  EXPECT_EQ(report.prefix, "");
  EXPECT_EQ(report.loaded, 2);
}

TEST_F(Weights, WithThePrefixOnSomeNamesOnlyAreRefused) {
  auto model = make_model("toy", 5);
  auto mixed = copies(named_state(*model), "module.");
  mixed.insert("extra", at::ones({1}));
  EXPECT_THAT(
      lockstep::testing::message_of<DataError>([&] { load_weights(*model, written(mixed)); }),
      HasSubstr("missing in the file: net1.weight"));
}

TEST_F(Weights, AreConvertedBetweenFloatsAndThisIsSaid) {
  auto model = make_model("toy", 5);
  NamedTensors other("Tensor");
  other.insert("net1.weight", at::full({10, 10}, 1.5, at::kHalf));
  other.insert("net1.bias", at::full({10}, -2, at::kBFloat16));
  other.insert("net2.weight", at::full({5, 10}, 1.0 / 3, at::kDouble));
  other.insert("net2.bias", at::full({5}, 4, at::kHalf));
  const auto report = load_weights(*model, written(other));
  EXPECT_EQ(remarks_text(report),
      "  converted 1 tensors from bfloat16 to float32\n"
      "  converted 2 tensors from float16 to float32\n"
      "  converted 1 tensors from float64 to float32\n");
  const auto state = named_state(*model);
  EXPECT_TRUE(state["net1.weight"].eq(1.5).all().item<bool>());
  EXPECT_TRUE(state["net1.bias"].eq(-2).all().item<bool>());
  EXPECT_TRUE(state["net2.weight"].equal(at::full({5, 10}, 1.0F / 3.0F)));
  EXPECT_EQ(state["net2.weight"].scalar_type(), at::kFloat);
}

TEST_F(Weights, ThatAreNotFiniteAreLoadedAndReported) {
  auto model = make_model("toy", 5);
  auto state = copies(named_state(*model));
  state["net1.weight"][3][4].fill_(std::nan(""));
  state["net2.bias"][0].fill_(-INFINITY);
  const auto report = load_weights(*model, written(state));
  EXPECT_EQ(remarks_text(report), "  NaN or Inf in net1.weight\n  NaN or Inf in net2.bias\n");
  EXPECT_TRUE(std::isnan(named_state(*model)["net1.weight"][3][4].item<double>()));
}

// PyTorch before 0.4.1 did not count batches.
TEST_F(Weights, WithoutCountersOfBatchesAreTakenAndThisIsSaid) {
  auto model = make_model("resnet18-cifar", 4);
  model(images_for("resnet18-cifar", 2));
  NamedTensors old("Tensor");
  for (const auto& item : named_state(*model)) {
    if (!item.key().ends_with("num_batches_tracked")) old.insert(item.key(), item.value());
  }
  const auto report = load_weights(*model, written(copies(old)));
  EXPECT_EQ(report.kept.size(), 20U);
  EXPECT_THAT(remarks_text(report),
      StartsWith("  kept the model's bn1.num_batches_tracked: here [] int64, in the file none\n"));
  EXPECT_EQ(named_state(*model)["bn1.num_batches_tracked"].item<std::int64_t>(), 1);
}

// LibTorch's to(kDouble) makes doubles of the counters, Python's double() leaves them int64.
TEST_F(Weights, CountersOfBatchesFitNetsOfDoubles) {
  auto single = make_model("resnet18-cifar", 4), net = make_model("resnet18-cifar", 4);
  single(images_for("resnet18-cifar", 2));
  save_weights(*single, file());
  net->to(torch::kDouble);
  EXPECT_THAT(remarks_text(load_weights(*net, file())),
      HasSubstr("converted 20 tensors from int64 to float64"));
  EXPECT_EQ(named_state(*net)["bn1.num_batches_tracked"].item<double>(), 1);
  save_weights(*net, file());
  auto back = make_model("resnet18-cifar", 4);
  load_weights(*back, file());
  expect_equal_state(*back, named_state(*single));
}

TEST_F(Weights, CanBeAPartOfAFile) {
  auto saved = make_model("toy", 5), model = make_model("toy", 5);
  auto state = copies(named_state(*saved), "state_dict.");
  state.insert("ema.net1.bias", at::ones({10}));
  const auto path = written(state);
  EXPECT_EQ(load_weights(*model, path, {.resizable = {}, .only = "state_dict"}).loaded, 4);
  expect_equal_state(*model, named_state(*saved));
}

TEST_F(Weights, KeepTheirTypesAndShapesInAFile) {
  NamedTensors state("Tensor");
  state.insert("half", at::full({2, 3}, 1.5, at::kHalf));
  state.insert("bfloat16", at::full({2}, 2, at::kBFloat16));
  state.insert("double", at::full({}, 3, at::kDouble));
  state.insert("long", at::full({1}, 4, at::kLong));
  state.insert("bool", at::ones({3}, at::kBool));
  state.insert("empty", at::empty({0, 4}));
  state.insert("strided", at::randn({3, 4}).t());
  for (const char* name : {"w.safetensors", "w.pth"}) {
    save_weights(state, file(name));
    const TensorFile weights = read_weights(file(name));
    const auto& file_entries = weights.entries();
    ASSERT_EQ(file_entries.size(), 7U);
    EXPECT_EQ(file_entries[0].type, ElementType::kFloat16);
    EXPECT_EQ(file_entries[2].shape, std::vector<std::int64_t>());
    EXPECT_EQ(file_entries[5].shape, (std::vector<std::int64_t>{0, 4}));
    EXPECT_EQ(file_entries[6].shape, (std::vector<std::int64_t>{4, 3}));
  }
}

TEST_F(Weights, HaveAnExtensionThatNamesTheFormat) {
  EXPECT_THROW(save_weights(*make_model("toy", 5), file("w.onnx")), InvalidArgument);
}

}  // namespace
}  // namespace lockstep::nn
