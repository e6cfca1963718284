#include "lockstep/formats/weights/tensor_file.h"

#include <gmock/gmock.h>
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

using ::testing::ElementsAre;
using Numbers = std::vector<std::int64_t>;

const std::vector<std::uint8_t> kStorage{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};

std::vector<std::uint8_t> row_major(
    const Numbers& shape, const Numbers& strides, std::size_t element_bytes) {
  std::vector<std::uint8_t> copy(element_bytes);
  for (const std::int64_t size : shape) copy.resize(copy.size() * static_cast<std::size_t>(size));
  copy_row_major(copy, kStorage, shape, strides, element_bytes);
  return copy;
}

TEST(RowMajorCopy, TellsWhatIsContiguous) {
  EXPECT_TRUE(is_contiguous(Numbers{}, Numbers{}));
  EXPECT_TRUE(is_contiguous(Numbers{2, 3}, Numbers{3, 1}));
  EXPECT_TRUE(is_contiguous(Numbers{2, 1, 3}, Numbers{3, 77, 1}));
  EXPECT_TRUE(is_contiguous(Numbers{5, 0}, Numbers{9, 9}));
  EXPECT_FALSE(is_contiguous(Numbers{2, 3}, Numbers{1, 2}));
  EXPECT_FALSE(is_contiguous(Numbers{2, 3}, Numbers{4, 1}));
  EXPECT_FALSE(is_contiguous(Numbers{3}, Numbers{0}));
}

TEST(ViewEnd, IsBehindTheLastElement) {
  EXPECT_EQ(view_end(0, Numbers{}, Numbers{}), 1U);
  EXPECT_EQ(view_end(2, Numbers{2, 3}, Numbers{4, 1}), 9U);
  EXPECT_EQ(view_end(2, Numbers{2, 0}, Numbers{4, 1}), 2U);
  EXPECT_EQ(view_end(0, Numbers{5}, Numbers{0}), 1U);
  EXPECT_FALSE(view_end(UINT64_MAX, Numbers{}, Numbers{}));
  EXPECT_FALSE(view_end(0, Numbers{INT64_MAX, 3}, Numbers{INT64_MAX, 1}));
  // Together 2^64 + 1.
  EXPECT_FALSE(view_end(2, Numbers{3}, Numbers{INT64_MAX}));
}

TEST(RowMajorCopy, GivesTheElementsRowMajor) {
  EXPECT_THAT(row_major(Numbers{3, 2}, Numbers{1, 3}, 1), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(row_major(Numbers{2, 2}, Numbers{2, 1}, 2), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(row_major(Numbers{2, 2}, Numbers{0, 5}, 2), ElementsAre(0, 1, 10, 11, 0, 1, 10, 11));
  EXPECT_THAT(
      row_major(Numbers{2, 2, 2}, Numbers{1, 4, 2}, 1), ElementsAre(0, 2, 4, 6, 1, 3, 5, 7));
  EXPECT_THAT(row_major(Numbers{}, Numbers{}, 4), ElementsAre(0, 1, 2, 3));
}

TEST(RowMajorCopy, StridesThatNoElementUsesMayBeHuge) {
  EXPECT_THAT(row_major(Numbers{1, 2, 1}, Numbers{INT64_MAX, 3, INT64_MAX}, 1), ElementsAre(0, 3));
}

}  // namespace

}  // namespace lockstep
