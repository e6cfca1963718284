#include "lockstep/comm/reduce/reduce_kernel.h"

#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/host/collective.h"
#include "lockstep/simd/instructions.h"

namespace lockstep::reduce {
namespace {

std::vector<Kernel> kernels() {
  std::vector<Kernel> all = {reduce_plain};
  if (simd::has_instructions(simd::InstructionSet::kAvx2)) all.push_back(reduce_avx2);
  if (simd::has_instructions(simd::InstructionSet::kAvx512)) all.push_back(reduce_avx512);
  return all;
}

torch::Tensor reduce_with(Kernel kernel, const std::vector<torch::Tensor>& inputs, ReduceOp op) {
  const torch::Tensor output = torch::empty_like(inputs[0]);
  std::vector<const void*> from;
  for (const auto& input : inputs) from.push_back(input.data_ptr());
  void* to = output.data_ptr();
  kernel({*host::reduce_element(output.scalar_type()), op, from.data(),
      static_cast<int>(from.size()), &to, 1, static_cast<std::size_t>(output.numel())});
  return output;
}

// All 65,536 patterns of a 16-bit type, so that subnormals, infinities and NaNs are among them.
torch::Tensor all_halves(at::ScalarType type) {
  const torch::Tensor bits = torch::arange(65536, torch::kInt).to(torch::kShort);
  return bits.view(type);
}

bool same_bits_or_both_nan(const torch::Tensor& a, const torch::Tensor& b) {
  const torch::Tensor nan = torch::isnan(a) & torch::isnan(b);
  return torch::all((a.view(torch::kShort) == b.view(torch::kShort)) | nan).item<bool>();
}

TEST(ReduceKernel, HalfTypesConvertAsLibTorchDoesInEveryPattern) {
  for (const auto type : {torch::kHalf, torch::kBFloat16}) {
    const torch::Tensor values = all_halves(type);
    const torch::Tensor other = values.flip(0).contiguous();
    const torch::Tensor expected = (values.to(torch::kFloat) + other.to(torch::kFloat)).to(type);
    for (const Kernel kernel : kernels()) {
      EXPECT_TRUE(same_bits_or_both_nan(reduce_with(kernel, {values}, ReduceOp::kSum), values))
          << type;
      EXPECT_TRUE(
          same_bits_or_both_nan(reduce_with(kernel, {values, other}, ReduceOp::kSum), expected))
          << type;
    }
  }
}

TEST(ReduceKernel, AllBuildsGiveTheSameBitsAtEveryLength) {
  torch::manual_seed(1);
  for (const auto type : {torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16}) {
    for (const std::int64_t elements : {1, 15, 16, 17, 31, 100, 1003}) {
      std::vector<torch::Tensor> inputs;
      for (int i = 0; i < 3; ++i) inputs.push_back(torch::randn({elements}).to(type));
      for (const auto op :
          {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax}) {
        const torch::Tensor plain = reduce_with(reduce_plain, inputs, op);
        for (const Kernel kernel : kernels())
          EXPECT_TRUE(torch::equal(reduce_with(kernel, inputs, op), plain));
      }
    }
  }
}

// The loops are unrolled for some numbers of inputs and outputs only.
TEST(ReduceKernel, AnyNumberOfInputsAndOutputsGivesTheSameBits) {
  torch::manual_seed(2);
  const torch::Tensor values = torch::randn({6, 101});
  for (int count = 1; count <= 6; ++count) {
    torch::Tensor expected = values[0].clone();
    for (int i = 1; i < count; ++i) expected += values[i];
    for (const int outputs : {1, count}) {
      for (const Kernel kernel : kernels()) {
        const torch::Tensor ranks = values.clone();
        void* rows[6];
        for (int i = 0; i < count; ++i) rows[i] = ranks[i].data_ptr();
        kernel({Element::kFloat, ReduceOp::kSum, rows, count, rows, outputs, 101});
        for (int i = 0; i < outputs; ++i) EXPECT_TRUE(torch::equal(ranks[i], expected));
      }
    }
  }
}

torch::Tensor reduce_rows(
    Kernel kernel, const torch::Tensor& rows, std::int64_t from_element, Traffic traffic) {
  const torch::Tensor output = torch::zeros({rows.size(1) + 64}, rows.options());
  void* to = output.slice(0, from_element).data_ptr();
  std::vector<const void*> from;
  for (std::int64_t row = 0; row < rows.size(0); ++row) from.push_back(rows[row].data_ptr());
  kernel({*host::reduce_element(rows.scalar_type()), ReduceOp::kSum, from.data(),
      static_cast<int>(from.size()), &to, 1, static_cast<std::size_t>(rows.size(1)), traffic});
  return output;
}

// Into a cache line's begin, where results may go past the caches, and elsewhere.
TEST(ReduceKernel, TheWayThroughTheCachesChangesNoBit) {
  torch::manual_seed(3);
  for (const auto type :
      {torch::kFloat, torch::kDouble, torch::kBFloat16, torch::kLong, torch::kByte}) {
    for (const std::int64_t elements : {0, 15, 64, 5003}) {
      for (const int inputs : {1, 2, 3, 4}) {
        const torch::Tensor rows = (torch::rand({inputs, elements}) * 50).to(type);
        for (const std::int64_t from : {0, 1}) {
          const torch::Tensor expected = reduce_rows(reduce_plain, rows, from, {});
          for (const Kernel kernel : kernels())
            EXPECT_TRUE(torch::equal(
                reduce_rows(kernel, rows, from, {.ahead = 4096, .streams = true}), expected))
                << type << " " << elements << " " << inputs << " " << from;
        }
      }
    }
  }
}

TEST(ReduceKernel, FloatsAreCombinedInTheOrderOfTheInputs) {
  const auto inputs = {torch::full({20}, 1e8f), torch::full({20}, 1.0f), torch::full({20}, -1e8f)};
  for (const Kernel kernel : kernels()) {
    EXPECT_TRUE(torch::all(reduce_with(kernel, inputs, ReduceOp::kSum) == (1e8f + 1.0f) - 1e8f)
                    .item<bool>());
  }
}

TEST(ReduceKernel, NotANumberOnAnyRankShowsInMinAndMax) {
  const torch::Tensor nan = torch::full({17}, std::numeric_limits<float>::quiet_NaN());
  const torch::Tensor one = torch::ones({17});
  for (const Kernel kernel : kernels()) {
    for (const auto op : {ReduceOp::kMin, ReduceOp::kMax}) {
      EXPECT_TRUE(torch::all(torch::isnan(reduce_with(kernel, {nan, one}, op))).item<bool>());
      EXPECT_TRUE(torch::all(torch::isnan(reduce_with(kernel, {one, nan}, op))).item<bool>());
    }
  }
}

TEST(Share, PartsAreDisjointAndCoverTheChunk) {
  for (const int size : {1, 2, 3, 4, 7}) {
    for (const std::int64_t count : {0, 1, 63, 64, 65, 1000, 100'003}) {
      std::int64_t next = 5;
      for (int rank = 0; rank < size; ++rank) {
        const host::Chunk share = host::share_of({5, count}, rank, size);
        EXPECT_EQ(share.begin, next);
        next += share.count;
      }
      EXPECT_EQ(next, 5 + count);
    }
  }
}

}  // namespace
}  // namespace lockstep::reduce
