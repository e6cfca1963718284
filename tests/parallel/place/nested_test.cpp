#include "lockstep/parallel/place/nested.h"

#include <gmock/gmock.h>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include <ATen/ops/full.h>
#include <c10/util/Exception.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;
using torch::Tensor;

using Everything = std::tuple<Tensor, std::pair<int, Tensor>, std::vector<std::array<Tensor, 2>>,
    std::map<std::string, Tensor>, std::unordered_map<std::string, std::optional<Tensor>>,
    std::string, torch::OrderedDict<std::string, Tensor>>;

Tensor number(double value) { return at::full({}, value); }

Everything everything() {
  Everything value{number(0), {17, number(1)}, {{number(2), number(3)}, {number(4), number(5)}},
      {{"b", number(7)}, {"a", number(6)}},
      {{"z", number(9)}, {"y", std::nullopt}, {"x", number(8)}}, "plain",
      torch::OrderedDict<std::string, Tensor>()};
  std::get<6>(value).insert("second", number(10));
  std::get<6>(value).insert("first", number(11));
  return value;
}

std::vector<double> numbers(const std::vector<Tensor>& tensors) {
  std::vector<double> values;
  for (const Tensor& tensor : tensors) values.push_back(tensor.item<double>());
  return values;
}

static_assert(Nested<Tensor> && Nested<const std::vector<Tensor>&> && Nested<Everything>);
static_assert(Nested<std::map<std::string, std::pair<int, Tensor>>>);
static_assert(!Nested<int> && !Nested<std::string> && !Nested<std::vector<int>>);
static_assert(!Nested<std::tuple<int, std::string>> && !Nested<std::optional<double>>);

TEST(Nested, TensorsComeInOneOrder) {
  EXPECT_THAT(numbers(flatten(everything())), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
}

TEST(Nested, PlainValuesHoldNone) {
  EXPECT_THAT(flatten(3), testing::IsEmpty());
  EXPECT_THAT(flatten(std::vector<int>{1, 2}), testing::IsEmpty());
}

TEST(Nested, UnflattenIsTheInverseAndKeepsWhatIsPlain) {
  const auto doubled = map_tensors(everything(), [](const Tensor& tensor) { return tensor * 2; });
  EXPECT_THAT(numbers(flatten(doubled)), ElementsAre(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22));
  const auto back = unflatten(doubled, flatten(everything()));
  EXPECT_EQ(numbers(flatten(back)), numbers(flatten(everything())));
  EXPECT_EQ(std::get<1>(back).first, 17);
  EXPECT_EQ(std::get<5>(back), "plain");
  EXPECT_EQ(std::get<6>(back).keys(), (std::vector<std::string>{"second", "first"}));
}

TEST(Nested, UnflattenRefusesAnotherNumberOfTensors) {
  const std::vector<Tensor> structure(3);
  EXPECT_THAT([&] { unflatten(structure, {number(1)}); },
      ThrowsMessage<InvalidArgument>(HasSubstr("the structure has 3 tensors, but these are 1")));
}

TEST(Nested, AMapHasOneOrderHoweverItWasFilled) {
  std::unordered_map<std::string, Tensor> a, b;
  for (int i = 0; i < 20; ++i) a.emplace(std::to_string(i), number(i));
  for (int i = 19; i >= 0; --i) b.emplace(std::to_string(i), number(i));
  EXPECT_EQ(numbers(flatten(a)), numbers(flatten(b)));
  EXPECT_TRUE(same_structure(a, b));
}

TEST(Nested, StructuresDifferInSizesKeysDefinednessAndPlainValues) {
  EXPECT_TRUE(same_structure(everything(), everything()));
  auto other = everything();
  std::get<1>(other).first = 18;
  EXPECT_FALSE(same_structure(everything(), other));
  other = everything();
  std::get<4>(other)["y"] = number(1);
  EXPECT_FALSE(same_structure(everything(), other));
  other = everything();
  std::get<6>(other).insert("third", number(1));
  EXPECT_FALSE(same_structure(everything(), other));
  EXPECT_FALSE(same_structure(std::vector<Tensor>(2), std::vector<Tensor>(3)));
  EXPECT_FALSE(same_structure(Tensor(), number(1)));
  EXPECT_FALSE(same_structure(std::map<std::string, Tensor>{{"a", number(1)}}, {{"b", number(1)}}));
}

}  // namespace
}  // namespace lockstep
