#include "lockstep/data/loader.h"

#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/data/gathered.h"

#include "lockstep/core/error.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/samples.h"

namespace lockstep {
namespace {

data::InMemoryImages digits() {
  return data::mock(
      {.size = 10, .shape = {.channels = 1, .height = 4, .width = 4}, .classes = 10, .seed = 1});
}

const std::vector<std::int64_t> kSevenIndices{3, 1, 4, 1, 5, 9, 2};

torch::Tensor images_at(
    const std::vector<std::int64_t>& indices, torch::ScalarType dtype = torch::kFloat) {
  return data::gather_images(digits(), indices, data::PixelScale(1), dtype);
}

TEST(Loader, CutsTheIndicesIntoBatches) {
  const std::vector<std::vector<std::int64_t>> expected{{3, 1, 4}, {1, 5, 9}, {2}};
  const Loader loader(digits(), kSevenIndices, 3);
  EXPECT_EQ(loader.size(), 3);
  std::size_t number = 0;
  for (auto& batch : loader) {
    ASSERT_LT(number, expected.size());
    EXPECT_TRUE(torch::equal(batch.input(), images_at(expected[number])));
    EXPECT_TRUE(torch::equal(batch.target(), data::gather_labels(digits(), expected[number])));
    ++number;
  }
  EXPECT_EQ(number, 3U);
}

TEST(Loader, CanDropALastBatchThatIsNotFull) {
  std::int64_t samples = 0;
  for (auto& batch : Loader(digits(), kSevenIndices, 3, {.drop_last = true}))
    samples += batch.target().size(0);
  EXPECT_EQ(samples, 6);
  EXPECT_EQ(Loader(digits(), {1, 2, 3}, 3, {.drop_last = true}).size(), 1);
  EXPECT_EQ(Loader(digits(), {1, 2}, 3, {.drop_last = true}).size(), 0);
}

TEST(Loader, OfNothingHasNoBatch) {
  for (auto& batch : Loader(digits(), {}, 3)) FAIL() << batch.target();
  for (auto& batch : Loader(digits(), {1}, 3, {.drop_last = true})) FAIL() << batch.target();
}

TEST(Loader, TakesTypeAndNormalization) {
  for (auto& batch : Loader(digits(), {3, 1}, 2, {.dtype = torch::kBFloat16})) {
    EXPECT_TRUE(torch::equal(batch.input(), images_at({3, 1}, torch::kBFloat16)));
  }
  for (auto& batch :
      Loader(digits(), {3, 1}, 2, {.normalization = {.mean = {0.5F}, .std = {0.25F}}})) {
    EXPECT_TRUE(torch::allclose(batch.input(), (images_at({3, 1}) - 0.5) / 0.25, 0, 1e-6));
  }
}

// As LibTorch's own data sets give them: a net that flattens its maps by view() works.
TEST(Loader, GivesImagesInPlanesUnlessAskedForChannelsLast) {
  for (auto& batch : Loader(digits(), kSevenIndices, 2)) {
    EXPECT_EQ(batch.input().strides(), torch::IntArrayRef({16, 16, 4, 1}));
  }
  for (auto& batch : Loader(digits(), kSevenIndices, 2, {.channels_last = true})) {
    EXPECT_EQ(batch.input().strides(), torch::IntArrayRef({16, 1, 4, 1}));
  }
  const auto colours = data::mock({.size = 10, .shape = {.channels = 3, .height = 4, .width = 4}});
  const Loader in_planes(colours, kSevenIndices, 2);
  const Loader last(colours, kSevenIndices, 2, {.channels_last = true});
  auto other = last.begin();
  for (auto& batch : in_planes) {
    EXPECT_EQ(batch.input().strides(), torch::IntArrayRef({48, 16, 4, 1}));
    EXPECT_EQ(other->input().strides(), torch::IntArrayRef({48, 1, 12, 3}));
    EXPECT_TRUE(torch::equal(batch.input(), other->input()));
    ++other;
  }
}

TEST(Loader, GivesImagesWhoseMapsCanBeViewedFlat) {
  const auto weight = torch::ones({10, 1, 1, 1});
  for (auto& batch : Loader(digits(), kSevenIndices, 2)) {
    const auto maps = torch::max_pool2d(torch::conv2d(batch.input(), weight), 2);
    ASSERT_NO_THROW(maps.view({-1, 40}));
    EXPECT_TRUE(torch::equal(maps.view({-1, 40}), maps.reshape({-1, 40})));
  }
}

TEST(Loader, UsesTheMemoryOfABatchThatNobodyHolds) {
  std::set<const void*> memory;
  for (auto& batch : Loader(digits(), kSevenIndices, 1)) memory.insert(batch.input().data_ptr());
  EXPECT_EQ(memory.size(), 1U);
}

TEST(Loader, LeavesABatchAloneThatSomeoneHolds) {
  std::vector<Batch> held;
  for (auto& batch : Loader(digits(), kSevenIndices, 2)) held.push_back(batch);
  ASSERT_EQ(held.size(), 4U);
  EXPECT_TRUE(torch::equal(held[0].input(), images_at({3, 1})));
  EXPECT_TRUE(torch::equal(held[1].input(), images_at({4, 1})));
  EXPECT_TRUE(torch::equal(
      held[0].target(), data::gather_labels(digits(), std::vector<std::int64_t>{3, 1})));
}

TEST(Loader, LeavesABatchAloneOfWhichSomeoneHoldsAView) {
  std::vector<torch::Tensor> views;
  std::vector<torch::Tensor> targets;
  for (auto& batch : Loader(digits(), kSevenIndices, 1)) {
    views.push_back(batch.input().flatten(1));
    targets.push_back(batch.target().view({1, 1}));
  }
  for (std::size_t i = 0; i < views.size(); ++i) {
    EXPECT_TRUE(torch::equal(views[i], images_at({kSevenIndices[i]}).flatten(1))) << i;
    EXPECT_EQ(targets[i].item<std::int64_t>(), digits().label(kSevenIndices[i])) << i;
  }
}

TEST(Loader, LeavesABatchAloneWhoseStorageSomeoneHolds) {
  // Unlike a view, such an alias does not keep the tensor that it came from.
  std::vector<torch::Tensor> images;
  std::vector<torch::Tensor> targets;
  for (auto& batch : Loader(digits(), kSevenIndices, 1)) {
    images.push_back(batch.input().variable_data());
    targets.push_back(batch.target().variable_data());
  }
  for (std::size_t i = 0; i < images.size(); ++i) {
    EXPECT_TRUE(torch::equal(images[i], images_at({kSevenIndices[i]}))) << i;
    EXPECT_EQ(targets[i].item<std::int64_t>(), digits().label(kSevenIndices[i])) << i;
  }
}

TEST(Loader, LeavesABatchAloneOfWhichSomeoneHoldsTheTargets) {
  std::vector<torch::Tensor> targets;
  for (auto& batch : Loader(digits(), kSevenIndices, 1)) targets.push_back(batch.target());
  for (std::size_t i = 0; i < targets.size(); ++i) {
    EXPECT_EQ(targets[i].item<std::int64_t>(), digits().label(kSevenIndices[i])) << i;
  }
}

TEST(Loader, LeavesABatchAloneThatAutogradHolds) {
  const auto weight = torch::ones({16, 1}, torch::requires_grad());
  std::vector<torch::Tensor> losses;
  for (auto& batch : Loader(digits(), kSevenIndices, 1))
    losses.push_back(batch.input().flatten(1).mm(weight).sum());
  auto total = torch::zeros({16, 1});
  for (const auto& loss : losses) loss.backward();
  for (const std::int64_t index : kSevenIndices) total += images_at({index}).flatten(1).t();
  EXPECT_TRUE(torch::allclose(weight.grad(), total, 0, 1e-5));
}

TEST(Loader, ForgivesWhatTheLoopDoesToItsBatch) {
  std::vector<std::int64_t> seen;
  for (auto& batch : Loader(digits(), kSevenIndices, 1)) {
    EXPECT_TRUE(torch::equal(batch.input(), images_at({kSevenIndices[seen.size()]})));
    EXPECT_FALSE(batch.input().requires_grad());
    seen.push_back(batch.target().item<std::int64_t>());
    switch (seen.size()) {
      case 1:
        batch.input() = batch.input().to(torch::kDouble);
        break;
      case 2:
        batch.input() = batch.input().contiguous().flatten(1).clone();
        break;
      case 3:
        batch.input().set_requires_grad(true);
        break;
      case 4:
        batch.target() = torch::Tensor();
        break;
      case 5:
        batch.target() = batch.target().to(torch::kInt);
        break;
      default:
        batch = Batch();
        break;
    }
  }
  for (std::size_t i = 0; i < kSevenIndices.size(); ++i)
    EXPECT_EQ(seen[i], digits().label(kSevenIndices[i]));
}

TEST(Loader, CanBeWalkedTwice) {
  const Loader loader(digits(), kSevenIndices, 2);
  for (int pass = 0; pass < 2; ++pass) {
    std::int64_t samples = 0;
    for (auto& batch : loader) samples += batch.target().size(0);
    EXPECT_EQ(samples, 7);
  }
}

// Of two inputs: the index, and ten times it and more.
class TwoInputs final : public data::Samples {
 public:
  std::int64_t size() const override { return 10; }
  std::int64_t classes() const override { return 10; }
  data::ImageShape shape() const override { return {.height = 1, .width = 4}; }
  std::vector<data::InputForm> inputs() const override {
    return {{"index", {}, torch::kLong}, {"row", {1, 3}}};
  }
  std::string name(std::int64_t) const override { return ""; }
  void read(std::span<const data::SampleKey> keys, const Batch& out) const override {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      out.input()[at] = out.target()[at] = keys[i].index;
      out.inputs.at(1).tensor[at] = 10 * keys[i].index + torch::arange(3);
    }
  }
};

torch::Tensor rows_of(const torch::Tensor& indices) {
  return (10 * indices.view({-1, 1, 1}) + torch::arange(3)).to(torch::kFloat);
}

TEST(Loader, GivesAllInputsOfASetThatNamesThem) {
  const auto part = std::make_shared<data::SampleSubset>(
      std::make_shared<data::RepeatedSamples>(std::make_shared<TwoInputs>(), 3), kSevenIndices);
  for (const int workers : {0, 2}) {
    std::int64_t seen = 0;
    for (auto& batch : Loader(part, {0, 1, 2, 3, 4}, 2, {.workers = workers})) {
      const std::int64_t size = batch.target().size(0);
      ASSERT_EQ(batch.input_tensors().size(), 2U);
      EXPECT_EQ(batch.inputs.at(0).name, "index");
      EXPECT_EQ(batch.inputs.at(1).name, "row");
      EXPECT_TRUE(batch.input().equal(torch::tensor(kSevenIndices).slice(0, seen, seen + size)));
      EXPECT_EQ(batch.input().scalar_type(), torch::kLong);
      EXPECT_TRUE(batch.inputs.at(1).tensor.equal(rows_of(batch.input())));
      seen += size;
    }
    EXPECT_EQ(seen, 5);
  }
}

TEST(Loader, ShortensInputsOfFloatAlone) {
  const Loader loader(std::make_shared<TwoInputs>(), {7}, 1, {.dtype = torch::kBFloat16});
  EXPECT_EQ(loader.begin()->input().scalar_type(), torch::kLong);
  EXPECT_EQ(loader.begin()->inputs.at(1).tensor.scalar_type(), torch::kBFloat16);
}

TEST(Loader, LeavesABatchAloneOfWhichSomeoneHoldsALaterInput) {
  std::vector<torch::Tensor> held;
  std::set<const void*> memory;
  const Loader loader(std::make_shared<TwoInputs>(), kSevenIndices, 1);
  for (auto& batch : loader) held.push_back(batch.inputs.at(1).tensor);
  for (std::size_t i = 0; i < held.size(); ++i)
    EXPECT_TRUE(held[i].equal(rows_of(torch::tensor(kSevenIndices[i])))) << i;
  for (auto& batch : loader) memory.insert(batch.inputs.at(1).tensor.data_ptr());
  EXPECT_EQ(memory.size(), 1U) << "nobody holds it";
}

TEST(Loader, RefusesWhatCannotBe) {
  EXPECT_THROW(Loader(digits(), kSevenIndices, 0), InvalidArgument);
  EXPECT_THROW(Loader(digits(), kSevenIndices, 2, {.dtype = torch::kDouble}), InvalidArgument);
  EXPECT_THROW(Loader(digits(), {0, 10}, 2).begin(), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
