// The case W9 of the conformance list, and that files do not depend on how tensors lie in
// memory. What Python reads and writes is tried in tests/round_trip.

#include "lockstep/nn/weights.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "tests/nn/model_inputs.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include <ATen/ops/complex.h>
#include <ATen/ops/conj.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>
#include <torch/utils.h>

#include "lockstep/core/error.h"
#include "lockstep/formats/weights/weight_file.h"
#include "lockstep/nn/models/model.h"

namespace lockstep::nn {
namespace {

using lockstep::testing::message_of;

/// A folder for files of weights.
class Weights : public ::testing::Test {
 protected:
  Weights() { torch::manual_seed(3); }

  std::string file(const std::string& name = "w.safetensors") const {
    return (folder_.path() / name).string();
  }

  // Writes tensors as they are, under any names.
  std::string written(const NamedTensors& state) const {
    save_weights(state, file());
    return file();
  }

  static std::string refusal(torch::nn::Module& module, const std::string& path) {
    return message_of<DataError>([&] { load_weights(module, path); });
  }

  testing::TemporaryFolder folder_;
};

/// Copies tensors, so that a test may change them.
inline NamedTensors copies(const NamedTensors& state, const std::string& prefix = "") {
  NamedTensors result("Tensor");
  for (const auto& item : state) result.insert(prefix + item.key(), item.value().detach().clone());
  return result;
}

inline void expect_equal_state(const torch::nn::Module& ours, const NamedTensors& expected) {
  const auto state = named_state(ours);
  ASSERT_EQ(state.keys(), expected.keys());
  for (const auto& item : state) {
    EXPECT_TRUE(item.value().equal(expected[item.key()])) << item.key();
  }
}

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

TEST_F(Weights, OfPythonsDdpAndOfCompiledModulesLoseTheirPrefixesW9) {
  auto saved = make_model("toy", 5), model = make_model("toy", 5);
  for (const std::string prefix :
      {"module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."}) {
    const auto report = load_weights(*model, written(copies(named_state(*saved), prefix)));
    EXPECT_EQ(remarks_text(report), "  took '" + prefix + "' off every name\n");
    expect_equal_state(*model, named_state(*saved));
  }
}

// As the hub's file of GPT-2, which is that of the net without its head, and of an old version.
TEST_F(Weights, OfANetWithoutItsHeadLackAPrefixAndHaveMasks) {
  auto saved = make_model("gpt2-nano", 5), model = make_model("gpt2-nano", 5);
  const std::string child = "transformer.";
  NamedTensors hub("Tensor");
  for (const auto& item : named_state(*saved))
    hub.insert(item.key().substr(child.size()), item.value().detach());
  for (const std::string block : {"h.0.", "h.1."}) {
    hub.insert(block + "attn.bias", at::ones({1, 1, 8, 8}));
    hub.insert(block + "attn.masked_bias", at::full({}, -10000.0));
  }
  const auto report = load_weights(*model, written(hub));
  expect_equal_state(*model, named_state(*saved));
  EXPECT_EQ(remarks_text(report),
      "  put 'transformer.' before every name\n"
      "  left out 4 tensors that the model computes, such as transformer.h.0.attn.bias\n");
  hub.insert("h.2.attn.bias", at::ones({8}));
  EXPECT_THAT(
      refusal(*model, written(hub)), HasSubstr("not in the model: transformer.h.2.attn.bias"));
  hub.erase("h.2.attn.bias");
  hub.insert("transformer.ln_f.bias", at::ones({8}));
  EXPECT_THAT(
      refusal(*model, written(hub)), HasSubstr("missing in the file: transformer.wte.weight"))
      << "the prefix on some names";
}

struct TiedWeights : torch::nn::Module {
  at::Tensor a = register_parameter("a", at::full({2, 3}, 0.5));
  at::Tensor b = register_parameter("b", a);
};

TEST_F(Weights, ThatAreTiedNeedOneOfTheirNames) {
  for (const char* name : {"a", "b"}) {
    TiedWeights net;
    NamedTensors one("Tensor");
    one.insert(name, at::full({2, 3}, 7.0));
    load_weights(net, written(one));
    EXPECT_TRUE(net.a.eq(7).all().item<bool>()) << name;
  }
}

TEST_F(Weights, ThatAreTiedInTheModelMustBeEqualInTheFile) {
  TiedWeights net;
  NamedTensors both("Tensor");
  both.insert("a", at::full({2, 3}, 7.0));
  both.insert("b", at::full({2, 3}, 7.0));
  EXPECT_EQ(load_weights(net, written(both)).loaded, 2);
  both["b"].fill_(8);
  EXPECT_THAT(
      refusal(net, written(both)), HasSubstr("one tensor in the model, two in the file: b, a"));
  EXPECT_TRUE(net.a.eq(7).all().item<bool>()) << "nothing was loaded";
}

// As safetensors.torch.save_model() of Python writes them; this model has not tied them.
TEST_F(Weights, OfANameThatTheMetadataGivesToAnotherAreThatOnes) {
  torch::nn::Sequential net(torch::nn::Linear(3, 3), torch::nn::Linear(3, 3));
  NamedTensors kept = copies(named_state(*net));
  kept["0.weight"].fill_(7);
  kept.erase("1.weight");
  save_weights(kept, file(), {{"format", "pt"}, {"1.weight", "0.weight"}});
  load_weights(*net, file());
  EXPECT_TRUE(named_state(*net)["1.weight"].eq(7).all().item<bool>());
}

// A layer whose own layers have no tensors.
struct BareImpl : torch::nn::Module {
  BareImpl() { register_module("flatten", torch::nn::Flatten()); }
  at::Tensor forward(const at::Tensor& input) { return input; }
};
TORCH_MODULE(Bare);

// By LibTorch's torch::save() of a module.
TEST_F(Weights, ThatCppSavedAreRead) {
  auto saved = make_model("resnet18-cifar", 4), loaded = make_model("resnet18-cifar", 4);
  saved(images_for("resnet18-cifar", 4));
  torch::save(saved, file("net.pt"));
  EXPECT_EQ(load_weights(*loaded, file("net.pt")).loaded, 122);
  expect_equal_state(*loaded, named_state(*saved));
  torch::nn::Sequential chain(
      torch::nn::Linear(2, 3), torch::nn::ReLU(), Bare(), torch::nn::Linear(3, 2));
  torch::save(chain, file("chain.pt"));
  const auto expected = copies(named_state(*chain));
  for (auto& parameter : chain->parameters()) parameter.detach().zero_();
  EXPECT_EQ(load_weights(*chain, file("chain.pt")).loaded, 4);
  expect_equal_state(*chain, expected);
}

TEST_F(Weights, OfTheOptimizerThatCppSavedAreNotTensorsAlone) {
  torch::nn::Linear net(2, 3);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  torch::save(optimizer, file("optimizer.pt"));
  EXPECT_THAT(refusal(*net, file("optimizer.pt")), HasSubstr("values are not tensors"));
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
  EXPECT_THAT(refusal(*model, written(mixed)), HasSubstr("missing in the file: net1.weight"));
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

TEST_F(Weights, OfComplexNumbersAreFiniteInBothParts) {
  const auto number = [](double real, double imaginary) {
    return at::complex(at::full({2}, real), at::full({2}, imaginary));
  };
  EXPECT_TRUE(is_finite(number(1, 2)));
  EXPECT_FALSE(is_finite(number(1, std::nan(""))));
  EXPECT_FALSE(is_finite(at::conj(number(INFINITY, 2))));
  EXPECT_FALSE(overflows_of({number(1, 2)}).at(0).item<bool>());
  EXPECT_TRUE(overflows_of({number(1, INFINITY)}).at(0).item<bool>());
}

TEST_F(Weights, ThatOverflowByTheirConversionAreReported) {
  auto model = make_model("toy", 5);
  auto state = copies(named_state(*model));
  state["net1.weight"][3][4].fill_(1e6);
  model->to(at::kHalf);
  EXPECT_THAT(
      remarks_text(load_weights(*model, written(state))), HasSubstr("NaN or Inf in net1.weight\n"));
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

// How far a file may differ from the model: the case W5 of the conformance list.

using ::testing::IsEmpty;
using WeightsThatDiffer = Weights;

// toy: net1.weight [10, 10], net1.bias [10], net2.weight [5, 10], net2.bias [5].
TEST_F(WeightsThatDiffer, EveryDifferenceIsListedAndNothingLoadedW5) {
  auto model = make_model("toy", 5);
  const auto before = copies(named_state(*model));
  NamedTensors other("Tensor");
  other.insert("net1.weight", at::ones({10, 10}));
  other.insert("net1.bias", at::ones({2, 5}));
  other.insert("net2.bias", at::ones({5}, at::kLong));
  other.insert("net3.bias", at::ones({1}));
  const std::string path = written(other);
  EXPECT_EQ(refusal(*model, path),
      "load_weights: " + path +
          ": the weights do not fit the model; nothing was loaded:\n"
          "  missing in the file: net2.weight\n"
          "  not in the model: net3.bias\n"
          "  other: net1.bias: here [10] float32, in the file [2, 5] float32\n"
          "  other: net2.bias: here [5] float32, in the file [5] int64\n"
          "choose the model that the file was made with, or let a new head keep its own "
          "values (LoadWeightsOptions::resizable)");
  expect_equal_state(*model, before);
}

TEST_F(WeightsThatDiffer, L4TheFirstTenAreNamedAndTheOthersCounted) {
  auto model = make_model("toy", 5);
  NamedTensors other("Tensor");
  for (int i = 0; i < 1000; ++i) other.insert(concat("t", i), at::zeros({1}));
  const auto message = refusal(*model, written(other));
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 12) << message;
  EXPECT_THAT(message, HasSubstr("\n  missing in the file: net2.bias\n  not in the model: t0\n"));
  EXPECT_THAT(message, HasSubstr("\n  not in the model: t5\n  ... and 994 more\nchoose"));
}

TEST_F(WeightsThatDiffer, OfANewHeadAreKept) {
  auto saved = make_model("toy", 7), model = make_model("toy", 5);
  const auto before = copies(named_state(*model));
  save_weights(*saved, file());
  const auto report =
      load_weights(*model, file(), {.resizable = {"net2.weight", "net2.bias"}, .only = {}});
  EXPECT_EQ(report.loaded, 2);
  EXPECT_EQ(remarks_text(report),
      "  kept the model's net2.weight: here [5, 10] float32, in the file [7, 10] float32\n"
      "  kept the model's net2.bias: here [5] float32, in the file [7] float32\n");
  const auto after = named_state(*model);
  EXPECT_TRUE(after["net1.weight"].equal(named_state(*saved)["net1.weight"]));
  EXPECT_TRUE(after["net2.weight"].equal(before["net2.weight"]));
}

// A head may have other classes, not other features, another type, or be absent.
TEST_F(WeightsThatDiffer, OfANewHeadAreRefusedIfMoreDiffersW5) {
  auto model = make_model("toy", 5);
  const LoadWeightsOptions options{.resizable = {"net2.weight", "net2.bias"}, .only = {}};
  const auto load = [&](const torch::Tensor& weight) {
    auto state = copies(named_state(*make_model("toy", 7)));
    NamedTensors other("Tensor");
    for (const auto& item : state) {
      if (item.key() != "net2.weight") other.insert(item.key(), item.value());
    }
    if (weight.defined()) other.insert("net2.weight", weight);
    load_weights(*model, written(other), options);
  };
  const auto message = [&](const torch::Tensor& weight) {
    return message_of<DataError>([&] { load(weight); });
  };
  const auto says = [](const char* text) {  // and gives no advice that was followed
    return AllOf(HasSubstr(text), Not(HasSubstr("LoadWeightsOptions")));
  };
  EXPECT_THAT(message(at::ones({7, 11})), says("other: net2.weight: here [5, 10] float32"));
  EXPECT_THAT(message(at::ones({7, 10, 1})), says("other: net2.weight"));
  EXPECT_THAT(message(at::ones({})), says("other: net2.weight"));
  EXPECT_THAT(message({}), says("missing in the file: net2.weight"));
  EXPECT_NO_THROW(load(at::ones({7, 10})));
}

// As by `lockstep eval`, whose user has no options of a library.
TEST_F(WeightsThatDiffer, OfNamedTensorsAreRefusedWithoutAdviceOnAModule) {
  save_weights(*make_model("toy", 7), file());
  const auto model = named_state(*make_model("toy", 5));
  EXPECT_THAT(message_of<DataError>([&] { load_weights(model, file()); }),
      AllOf(HasSubstr("other: net2.bias: here [5] float32, in the file [7] float32\n"),
          ::testing::EndsWith("\nchoose the model that the file was made with")));
}

TEST_F(WeightsThatDiffer, OfAHeadThatFitsAreLoaded) {
  auto saved = make_model("toy", 5), model = make_model("toy", 5);
  save_weights(*saved, file());
  const auto report = load_weights(*model, file(), {.resizable = {"net2.weight"}, .only = {}});
  EXPECT_EQ(report.loaded, 4);
  EXPECT_THAT(report.kept, IsEmpty());
  expect_equal_state(*model, named_state(*saved));
}

TEST_F(WeightsThatDiffer, ThatMayDifferInSizeMustBeTheModels) {
  auto model = make_model("toy", 5);
  save_weights(*model, file());
  EXPECT_THROW(
      load_weights(*model, file(), {.resizable = {"fc.weight"}, .only = {}}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep::nn
