#include "lockstep/formats/weights/tensor_numbers.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <vector>

#include "tests/support/message_of.h"

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Bytes = std::vector<std::uint8_t>;

template <typename Number>
std::vector<Number> numbers(ElementType type, const Bytes& bytes) {
  std::vector<Number> out(bytes.size() / bytes_of(type));
  copy_numbers<Number>(type, bytes, out);
  return out;
}

TEST(CopyNumbers, WidensIntegers) {
  using Type = ElementType;
  EXPECT_THAT(numbers<std::int64_t>(Type::kInt8, {0xff, 1}), ElementsAre(-1, 1));
  EXPECT_THAT(numbers<std::int64_t>(Type::kUint8, {0xff, 1}), ElementsAre(255, 1));
  EXPECT_THAT(numbers<std::int64_t>(Type::kInt16, {0xff, 0xff}), ElementsAre(-1));
  EXPECT_THAT(numbers<std::int64_t>(Type::kUint16, {0xff, 0xff}), ElementsAre(65535));
  EXPECT_THAT(numbers<std::int64_t>(Type::kInt32, {0xfe, 0xff, 0xff, 0xff}), ElementsAre(-2));
  EXPECT_THAT(
      numbers<std::int64_t>(Type::kUint32, {0xff, 0xff, 0xff, 0xff}), ElementsAre(4294967295));
  EXPECT_THAT(numbers<std::int64_t>(Type::kBool, {0, 1, 7}), ElementsAre(0, 1, 1));
  EXPECT_THAT(numbers<float>(Type::kInt8, {0xff}), ElementsAre(-1.0F));
}

TEST(CopyNumbers, ReadsAllKindsOfFloat) {
  using Type = ElementType;
  EXPECT_THAT(numbers<float>(Type::kFloat64, {0, 0, 0, 0, 0, 0, 0xf8, 0x3f}), ElementsAre(1.5F));
  EXPECT_THAT(numbers<double>(Type::kFloat32, {0, 0, 0x20, 0xc0}), ElementsAre(-2.5));
  EXPECT_THAT(numbers<float>(Type::kBfloat16, {0x20, 0xc0}), ElementsAre(-2.5F));
  EXPECT_THAT(numbers<float>(Type::kFloat16, {0x00, 0xc1, 0xff, 0x7b, 0x01, 0x80, 0x00, 0xfc}),
      ElementsAre(-2.5F, 65504.0F, -std::ldexp(1.0F, -24), -INFINITY));
  EXPECT_TRUE(std::isnan(numbers<float>(Type::kFloat16, {0x00, 0x7e})[0]));
}

TEST(CopyNumbers, RefusesWhatHasNoPlace) {
  const auto fault = [](ElementType type) {
    return testing::message_of<InvalidArgument>(
        [&] { numbers<std::int64_t>(type, Bytes(bytes_of(type))); });
  };
  EXPECT_THAT(fault(ElementType::kFloat16), HasSubstr("float16 has no place in integers"));
  EXPECT_THAT(fault(ElementType::kUint64), HasSubstr("uint64 is not read"));
  EXPECT_THAT(fault(ElementType::kComplex64), HasSubstr("complex64 is not read"));
  std::vector<float> three(3);
  EXPECT_THROW(copy_numbers<float>(ElementType::kFloat32, Bytes(8), three), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
