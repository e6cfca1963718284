#include "lockstep/formats/weights/tensor_bytes.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using Shape = std::vector<std::int64_t>;

TEST(TensorBytes, MultipliesSizes) {
  EXPECT_EQ(tensor_bytes(ElementType::kFloat32, Shape{2, 3}), 24U);
  EXPECT_EQ(tensor_bytes(ElementType::kComplex128, Shape{}), 16U);
  EXPECT_EQ(tensor_bytes(ElementType::kUint8, Shape{0, 5}), 0U);
}

TEST(TensorBytes, GivesNothingOnOverflow) {
  constexpr std::int64_t kMost = INT64_MAX;
  EXPECT_EQ(tensor_bytes(ElementType::kUint8, Shape{kMost}), static_cast<std::uint64_t>(kMost));
  EXPECT_FALSE(tensor_bytes(ElementType::kUint8, Shape{kMost, 2}));
  EXPECT_FALSE(tensor_bytes(ElementType::kInt16, Shape{kMost}));
  EXPECT_FALSE(tensor_bytes(ElementType::kUint8, Shape{0, kMost, kMost}));
  EXPECT_FALSE(tensor_bytes(ElementType::kUint8, Shape{-1}));
  EXPECT_FALSE(tensor_bytes(ElementType::kUint8, Shape{0, -1}));
  EXPECT_TRUE(tensor_bytes(ElementType::kUint8, Shape(64, 1)));
  EXPECT_FALSE(tensor_bytes(ElementType::kUint8, Shape(65, 1)));
}

TEST(ElementTypes, AreFoundByBothNames) {
  for (int i = 0; i <= static_cast<int>(ElementType::kComplex128); ++i) {
    const auto type = static_cast<ElementType>(i);
    EXPECT_EQ(element_type_of_torch(torch_name(type)), type);
    const auto name = safetensors_name(type);
    EXPECT_EQ(name.has_value(), type != ElementType::kComplex128);
    EXPECT_EQ(
        element_type_of_safetensors(name.value_or("")), name ? std::optional(type) : std::nullopt);
  }
  EXPECT_FALSE(element_type_of_torch("float"));
  EXPECT_FALSE(element_type_of_safetensors(""));
}

}  // namespace
}  // namespace lockstep
