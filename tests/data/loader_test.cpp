#include "lockstep/data/loader.h"

#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/data/batch.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/samples.h"

namespace lockstep::data {
namespace {

torch::Tensor gather_images(const InMemoryImages& images, std::span<const std::int64_t> indices,
    const PixelScale& scale, torch::ScalarType dtype = torch::kFloat) {
  auto out = empty_images(std::ssize(indices), images.shape(), dtype, true);
  gather_images_into(out, images, indices, scale);
  return out;
}

torch::Tensor gather_labels(const InMemoryImages& images, std::span<const std::int64_t> indices) {
  auto out = torch::empty({std::ssize(indices)}, torch::TensorOptions().dtype(torch::kLong));
  gather_labels_into(out, images, indices);
  return out;
}

InMemoryImages images_of(std::int64_t channels) {
  return mock({.size = 50,
      .shape = {.channels = channels, .height = 7, .width = 9},
      .classes = 10,
      .seed = 3});
}

/// Does what a Python user would: index the whole set, convert, divide.
torch::Tensor expected(const InMemoryImages& images, const std::vector<std::int64_t>& indices) {
  const auto& shape = images.shape();
  const auto all = torch::from_blob(const_cast<std::uint8_t*>(images.pixels(0)),
      {50, shape.height, shape.width, shape.channels}, torch::kByte);
  const auto chosen = all.index_select(0, torch::tensor(indices).remainder(50));
  return chosen.permute({0, 3, 1, 2}).to(torch::kFloat).div(255);
}

TEST(Gather, EqualsIndexSelectAndDivision) {
  const std::vector<std::int64_t> indices{3, 49, 0, 3, 17, 2, 30};
  for (const std::int64_t channels : {1, 3, 4}) {
    const auto images = images_of(channels);
    const auto got = gather_images(images, indices, PixelScale(channels));
    EXPECT_TRUE(torch::allclose(got, expected(images, indices), 0, 1e-7)) << channels;
    const auto half = gather_images(images, indices, PixelScale(channels), torch::kBFloat16);
    EXPECT_TRUE(torch::equal(half, expected(images, indices).to(torch::kBFloat16))) << channels;
  }
}

TEST(Gather, ReachesEveryImageOfARepeatedSet) {
  const auto images = images_of(1).repeated(3);
  std::vector<std::int64_t> indices(150);
  for (std::size_t i = 0; i < indices.size(); ++i)
    indices[i] = static_cast<std::int64_t>(i * 7 % 150);
  const auto got = gather_images(images, indices, PixelScale(1));
  EXPECT_TRUE(torch::allclose(got, expected(images, indices), 0, 1e-7));
  const auto labels = gather_labels(images, indices);
  ASSERT_EQ(labels.scalar_type(), torch::kLong);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    EXPECT_EQ(labels.data_ptr<std::int64_t>()[i], images.label(indices[i] % 50));
  }
}

TEST(Gather, SaysChannelsLastInItsStrides) {
  const std::vector<std::int64_t> indices{0, 1};
  EXPECT_EQ(gather_images(images_of(1), indices, PixelScale(1)).strides(),
      torch::IntArrayRef({63, 1, 9, 1}));
  EXPECT_EQ(gather_images(images_of(3), indices, PixelScale(3)).strides(),
      torch::IntArrayRef({189, 1, 27, 3}));
}

TEST(Gather, OfOneChannelMakesAConvolutionAnswerChannelsLast) {
  for (const auto dtype : {torch::kFloat, torch::kBFloat16}) {
    const auto batch =
        gather_images(images_of(1), std::vector<std::int64_t>(8, 1), PixelScale(1), dtype);
    auto weight =
        torch::empty_strided({32, 1, 3, 3}, {9, 1, 3, 1}, torch::TensorOptions().dtype(dtype));
    weight.fill_(0.1);
    const auto answer = torch::conv2d(batch, weight, {}, 1, 1);
    EXPECT_TRUE(answer.is_contiguous(torch::MemoryFormat::ChannelsLast)) << answer.strides();
    EXPECT_FALSE(answer.is_contiguous()) << answer.strides();
  }
}

TEST(Gather, GivesEachChannelAPlaneWhereTheOutputHasThem) {
  const std::vector<std::int64_t> indices{4, 5, 4};
  for (const std::int64_t channels : {1, 3, 4}) {
    for (const auto dtype : {torch::kFloat, torch::kBFloat16}) {
      const auto images = images_of(channels);
      const auto out = empty_images(3, images.shape(), dtype, false);
      ASSERT_EQ(out.strides(), torch::empty({3, channels, 7, 9}).strides());
      gather_images_into(out, images, indices, PixelScale(channels));
      const auto last = gather_images(images, indices, PixelScale(channels), dtype);
      EXPECT_TRUE(torch::equal(out, last)) << channels << dtype;
    }
  }
}

TEST(Gather, OfNothingIsEmpty) {
  EXPECT_EQ(
      gather_images(images_of(1), {}, PixelScale(1)).sizes(), torch::IntArrayRef({0, 1, 7, 9}));
  EXPECT_EQ(gather_labels(images_of(1), {}).numel(), 0);
}

TEST(Gather, RefusesIndicesOutOfRange) {
  const auto images = images_of(1);
  for (const std::int64_t index : {std::int64_t{-1}, std::int64_t{50}, std::int64_t{1} << 62}) {
    const std::vector<std::int64_t> indices{0, index};
    EXPECT_THROW(gather_images(images, indices, PixelScale(1)), InvalidArgument) << index;
    EXPECT_THROW(gather_labels(images, indices), InvalidArgument) << index;
  }
}

TEST(Gather, RefusesOutputsOfAnotherForm) {
  const auto images = images_of(1);
  const std::vector<std::int64_t> indices{0, 1};
  const PixelScale scale(1);
  const auto refuses = [&](const torch::Tensor& out) {
    EXPECT_THROW(gather_images_into(out, images, indices, scale), InvalidArgument) << out.sizes();
  };
  refuses(torch::Tensor());
  refuses(torch::empty({2, 1, 9, 7}).transpose(2, 3));
  refuses(empty_images(3, images.shape(), torch::kFloat, true));
  refuses(empty_images(2, images_of(3).shape(), torch::kFloat, true));
  refuses(empty_images(2, images.shape(), torch::kHalf, true));
  EXPECT_THROW(gather_images(images, indices, PixelScale(3)), InvalidArgument);
  EXPECT_THROW(
      gather_labels_into(torch::empty({3}, torch::kLong), images, indices), InvalidArgument);
  EXPECT_THROW(
      gather_labels_into(torch::empty({2}, torch::kInt), images, indices), InvalidArgument);
}

InMemoryImages digits() {
  return mock(
      {.size = 10, .shape = {.channels = 1, .height = 4, .width = 4}, .classes = 10, .seed = 1});
}

const std::vector<std::int64_t> kSevenIndices{3, 1, 4, 1, 5, 9, 2};

torch::Tensor images_at(
    const std::vector<std::int64_t>& indices, torch::ScalarType dtype = torch::kFloat) {
  return gather_images(digits(), indices, PixelScale(1), dtype);
}

TEST(Loader, CutsTheIndicesIntoBatches) {
  const std::vector<std::vector<std::int64_t>> expected{{3, 1, 4}, {1, 5, 9}, {2}};
  const Loader loader(digits(), kSevenIndices, 3);
  EXPECT_EQ(loader.size(), 3);
  std::size_t number = 0;
  for (auto& batch : loader) {
    ASSERT_LT(number, expected.size());
    EXPECT_TRUE(torch::equal(batch.input(), images_at(expected[number])));
    EXPECT_TRUE(torch::equal(batch.target(), gather_labels(digits(), expected[number])));
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
  const auto colours = mock({.size = 10, .shape = {.channels = 3, .height = 4, .width = 4}});
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

TEST(Loader, UsesTheMemoryOfABatchThatNobodyHolds) {
  std::set<const void*> memory;
  for (auto& batch : Loader(digits(), kSevenIndices, 1)) memory.insert(batch.input().data_ptr());
  EXPECT_EQ(memory.size(), 1U);
}

// What someone may hold of a batch. Unlike a view, an alias of its storage does not keep the tensor
// that it came from.
TEST(Loader, LeavesABatchAloneThatSomeoneHolds) {
  const std::vector<std::function<Batch(const Batch&)>> holders{
      [](const Batch& batch) { return batch; },
      [](const Batch& batch) -> Batch {
        return {batch.input().flatten(1), batch.target().view({1, 1})};
      },
      [](const Batch& batch) -> Batch {
        return {batch.input().variable_data(), batch.target().variable_data()};
      },
      [](const Batch& batch) -> Batch {
        return {{}, batch.target()};
      }};
  for (std::size_t holder = 0; holder < holders.size(); ++holder) {
    std::vector<Batch> held;
    for (auto& batch : Loader(digits(), kSevenIndices, 1)) held.push_back(holders[holder](batch));
    ASSERT_EQ(held.size(), 7U);
    for (std::size_t i = 0; i < held.size(); ++i) {
      const auto expected_images = images_at({kSevenIndices[i]});
      EXPECT_EQ(held[i].target().item<std::int64_t>(), digits().label(kSevenIndices[i])) << holder;
      if (held[i].input().defined()) {
        EXPECT_TRUE(torch::equal(held[i].input().flatten(1), expected_images.flatten(1))) << holder;
      }
    }
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
class TwoInputs final : public Samples {
 public:
  std::int64_t size() const override { return 10; }
  std::int64_t classes() const override { return 10; }
  ImageShape shape() const override { return {.height = 1, .width = 4}; }
  std::vector<TensorForm> inputs() const override {
    return {{"index", {}, torch::kLong}, {"row", {1, 3}}};
  }
  std::string name(std::int64_t) const override { return ""; }
  void read(std::span<const SampleKey> keys, const Batch& out) const override {
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
  const auto part = std::make_shared<SampleSubset>(
      std::make_shared<RepeatedSamples>(std::make_shared<TwoInputs>(), 3), kSevenIndices);
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

// Its targets: the two indices that follow, and half of its own.
class TwoTargets final : public Samples {
 public:
  std::int64_t size() const override { return 10; }
  std::int64_t classes() const override { return 0; }
  ImageShape shape() const override { return {.height = 1, .width = 1}; }
  std::vector<TensorForm> inputs() const override { return {{"x", {}}}; }
  std::vector<TensorForm> targets() const override {
    return {{"next", {2}, torch::kLong}, {"half", {}, torch::kFloat}};
  }
  std::string name(std::int64_t) const override { return ""; }
  void read(std::span<const SampleKey> keys, const Batch& out) const override {
    ASSERT_TRUE(has_form(out, std::ssize(keys), {.inputs = inputs(), .targets = targets()}) ||
                out.input().scalar_type() == torch::kBFloat16);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      out.input()[at] = keys[i].index;
      out.target()[at] = keys[i].index + torch::arange(1, 3);
      out.targets.at(1).tensor[at] = static_cast<double>(keys[i].index) / 2;
    }
  }
};

TEST(Loader, GivesAllTargetsOfASetInItsShapesAndTypes) {
  const auto part = std::make_shared<SampleSubset>(
      std::make_shared<RepeatedSamples>(std::make_shared<TwoTargets>(), 3), kSevenIndices);
  for (const auto dtype : {torch::kFloat, torch::kBFloat16}) {
    std::int64_t seen = 0;
    for (auto& batch : Loader(part, {0, 1, 2, 3, 4}, 2, {.dtype = dtype, .workers = 1})) {
      const auto own = torch::tensor(kSevenIndices).slice(0, seen, seen + batch.size());
      ASSERT_EQ(batch.targets.size(), 2U);
      EXPECT_EQ(batch.targets[0].name, "next");
      EXPECT_TRUE(batch.target().equal(own.view({-1, 1}) + torch::arange(1, 3)));
      EXPECT_EQ(batch.targets[1].name, "half");
      EXPECT_TRUE(batch.targets[1].tensor.equal(own.to(torch::kFloat) / 2));
      EXPECT_EQ(batch.targets[1].tensor.scalar_type(), torch::kFloat) << "is never shortened";
      EXPECT_EQ(batch.input().scalar_type(), dtype);
      seen += batch.size();
    }
    EXPECT_EQ(seen, 5);
  }
}

// Such as one whose inputs are to be reconstructed.
class NoTargets final : public Samples {
 public:
  std::int64_t size() const override { return 4; }
  std::int64_t classes() const override { return 0; }
  ImageShape shape() const override { return {.height = 1, .width = 1}; }
  std::vector<TensorForm> targets() const override { return {}; }
  std::string name(std::int64_t) const override { return ""; }
  void read(std::span<const SampleKey> keys, const Batch& out) const override {
    for (std::size_t i = 0; i < keys.size(); ++i)
      out.input()[static_cast<std::int64_t>(i)] = static_cast<double>(keys[i].index);
  }
};

TEST(Loader, ReusesTheMemoryOfASetWithoutTargets) {
  std::set<const void*> memory;
  std::int64_t samples = 0;
  for (auto& batch : Loader(std::make_shared<NoTargets>(), {0, 1, 2, 3}, 2)) {
    EXPECT_FALSE(batch.is_empty());
    EXPECT_THROW(batch.target(), std::out_of_range);
    EXPECT_EQ(batch.input()[1].item<double>(), static_cast<double>(samples + 1));
    memory.insert(batch.input().data_ptr());
    samples += batch.size();
  }
  EXPECT_EQ(samples, 4);
  EXPECT_EQ(memory.size(), 1U);
}

TEST(HasForm, ComparesEachTarget) {
  const BatchForm form{.inputs = {{"x", {}}}, .targets = {{"next", {2}, torch::kLong}}};
  const Batch batch = empty_batch(3, form);
  EXPECT_TRUE(has_form(batch, 3, form));
  EXPECT_FALSE(has_form(batch, 2, form));
  BatchForm other = form;
  other.targets[0].sizes = {3};
  EXPECT_FALSE(has_form(batch, 3, other));
  other.targets[0] = {"next", {2}, torch::kFloat};
  EXPECT_FALSE(has_form(batch, 3, other));
  other.targets = {};
  EXPECT_FALSE(has_form(batch, 3, other));
}

TEST(Loader, RefusesWhatCannotBe) {
  EXPECT_THROW(Loader(digits(), kSevenIndices, 0), InvalidArgument);
  EXPECT_THROW(Loader(digits(), kSevenIndices, 2, {.first_batch = 5}), InvalidArgument);
  EXPECT_THROW(Loader(digits(), kSevenIndices, 2, {.first_batch = -1}), InvalidArgument);
  EXPECT_THROW(Loader(digits(), kSevenIndices, 2, {.workers = -1}), InvalidArgument);
  EXPECT_THROW(Loader(digits(), kSevenIndices, 2, {.prefetch = 0}), InvalidArgument);
  EXPECT_EQ(Loader(digits(), kSevenIndices, 2, {.first_batch = 4}).begin(), std::default_sentinel);
  EXPECT_THROW(Loader(digits(), kSevenIndices, 2, {.dtype = torch::kDouble}), InvalidArgument);
  EXPECT_THROW(Loader(digits(), {0, 10}, 2).begin(), InvalidArgument);
}

}  // namespace
}  // namespace lockstep::data
