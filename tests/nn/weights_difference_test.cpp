// How far a file may differ from the model: the case W5 of the conformance list.

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/nn/weights_fixture.h"
#include "tests/support/message_of.h"
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "lockstep/nn/models/model.h"

namespace lockstep::nn {
namespace {

using ::testing::HasSubstr;
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
  EXPECT_EQ(lockstep::testing::message_of<DataError>([&] { load_weights(*model, path); }),
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
  const auto message =
      lockstep::testing::message_of<DataError>([&] { load_weights(*model, written(other)); });
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
    return lockstep::testing::message_of<DataError>([&] { load(weight); });
  };
  EXPECT_THAT(message(at::ones({7, 11})), HasSubstr("other: net2.weight: here [5, 10] float32"));
  EXPECT_THAT(message(at::ones({7, 10, 1})), HasSubstr("other: net2.weight"));
  EXPECT_THAT(message(at::ones({})), HasSubstr("other: net2.weight"));
  EXPECT_THAT(message({}), HasSubstr("missing in the file: net2.weight"));
  EXPECT_NO_THROW(load(at::ones({7, 10})));
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
