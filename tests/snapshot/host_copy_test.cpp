#include "lockstep/snapshot/host_copy.h"

#include <cstring>
#include <gtest/gtest.h>

#include <torch/types.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/weights.h"

namespace lockstep {
namespace {

nn::NamedTensors numbered(const std::vector<torch::Tensor>& tensors) {
  nn::NamedTensors list("Tensor");
  for (const auto& tensor : tensors) list.insert(concat("t", list.size()), tensor);
  return list;
}

void expect_same(const TensorEntry& entry, const torch::Tensor& tensor) {
  const torch::Tensor plain = tensor.detach().cpu().contiguous();
  ASSERT_EQ(entry.bytes.size(), plain.nbytes());
  EXPECT_EQ(entry.shape, plain.sizes().vec());
  EXPECT_EQ(nn::scalar_type_of(entry.type), plain.scalar_type());
  if (plain.nbytes() > 0) {
    EXPECT_EQ(std::memcmp(entry.bytes.data(), plain.const_data_ptr(), plain.nbytes()), 0);
  }
}

TEST(HostCopy, BringsEveryOrderIntoRows) {
  const auto image = torch::randn({3, 4, 5, 6});
  const std::vector<torch::Tensor> tensors{image, image.clone(torch::MemoryFormat::ChannelsLast),
      image.to(torch::kDouble).clone(torch::MemoryFormat::ChannelsLast),
      image.to(torch::kBFloat16).clone(torch::MemoryFormat::ChannelsLast),
      (image > 0).clone(torch::MemoryFormat::ChannelsLast),
      torch::randn({2, 3, 4, 5, 6}).clone(torch::MemoryFormat::ChannelsLast3d),
      torch::randn({1, 4, 1, 6}).clone(torch::MemoryFormat::ChannelsLast), torch::randn({7, 9}).t(),
      torch::randn({4, 5, 6}).permute({2, 0, 1}),
      torch::randn({8, 8}).slice(1, 0, 8, 2),  // with gaps
      torch::randn({1, 5}).expand({3, 5}),     // repeated
      torch::randn({6}).to(torch::kComplexFloat), torch::randn({}), torch::zeros({0, 3}),
      torch::arange(10), torch::randn({3, 3}, torch::requires_grad())};
  HostCopy copy;
  copy.take({numbered(tensors)});
  const auto lists = copy.row_major();
  ASSERT_EQ(lists.size(), 1);
  ASSERT_EQ(lists[0].size(), tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(lists[0][i].name, concat("t", i));
    expect_same(lists[0][i], tensors[i]);
  }
}

TEST(HostCopy, ServesAgainForSmallerAndLargerOnes) {
  HostCopy copy;
  const std::uint8_t* first = nullptr;
  for (const std::int64_t size : {1000, 10, 1000, 3'000'000, 500}) {
    const auto a = torch::randn({size}), b = torch::randn({3, size});
    copy.take({numbered({a}), numbered({b, a})});
    const auto lists = copy.row_major();
    ASSERT_EQ(lists.size(), 2);
    expect_same(lists[0][0], a);
    expect_same(lists[1][0], b);
    expect_same(lists[1][1], a);
    EXPECT_EQ(copy.bytes(), 5U * static_cast<std::uint64_t>(size) * sizeof(float));
    if (first == nullptr) first = lists[0][0].bytes.data();
    if (size < 3'000'000 && size != 500) {
      EXPECT_EQ(lists[0][0].bytes.data(), first) << "the buffer is new";
    }
  }
}

TEST(HostCopy, AsksTwiceForTheSame) {
  const auto tensor = torch::randn({2, 3, 4, 5}).clone(torch::MemoryFormat::ChannelsLast);
  HostCopy copy;
  copy.take({numbered({tensor})});
  (void)copy.row_major();
  expect_same(copy.row_major()[0][0], tensor);
}

TEST(HostCopy, HasNothingToCopy) {
  HostCopy copy;
  copy.take({});
  EXPECT_TRUE(copy.row_major().empty());
  copy.take({nn::NamedTensors("Tensor")});
  EXPECT_EQ(copy.bytes(), 0U);
}

TEST(HostCopy, RefusesWhatFilesDoNotHave) {
  HostCopy copy;
  EXPECT_THROW(copy.take({numbered({torch::eye(2).to_sparse()})}), InvalidArgument);
  EXPECT_THROW(copy.take({numbered({torch::zeros({2}, torch::kComplexDouble)})}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
