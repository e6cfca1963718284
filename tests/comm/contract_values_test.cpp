// The contract over every element type and special number: what is moved arrives bit for bit, what
// is reduced is what shared memory gives, and what cannot be is refused before anything begins.

#include <cmath>
#include <gmock/gmock.h>
#include <limits>

#include "contract.h"
#include "tests/support/message_of.h"
#include "tests/support/places.h"

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using testing::Contract;
using testing::here;
using testing::kNumberTypes;

class ContractValues : public Contract {};
INSTANTIATE_TEST_SUITE_P(Backends, ContractValues,
    ::testing::ValuesIn(testing::groups_of({1, 2, 3, 4})), testing::contract_name);
#ifndef LOCKSTEP_TEST_MPI
INSTANTIATE_TEST_SUITE_P(Hosts, ContractValues, testing::kHosts, testing::contract_name);
#endif

constexpr at::ScalarType kMoved[] = {torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16,
    torch::kFloat8_e4m3fn, torch::kFloat8_e5m2, torch::kInt8, torch::kUInt8, torch::kShort,
    torch::kInt, torch::kLong, torch::kUInt16, torch::kUInt32, torch::kUInt64, torch::kBool};
constexpr at::ScalarType kReals[] = {torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16};
constexpr std::int64_t kLong = 40'003;  // elements that go in pieces
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Says whether the group reduces by our rules: NCCL has its own, such as sums in 16 bits.
bool is_ours(const ProcessGroup& group) { return group.device_backend_name() != "nccl"; }

torch::Tensor bytes_of(const torch::Tensor& tensor) {
  return tensor.cpu().clone().as_strided({tensor.numel()}, {1}).view(torch::kUInt8);
}

// In every type of numbers, among them NaN and the smallest: a conversion on the way would show.
torch::Tensor bits(std::int64_t elements, int seed, at::ScalarType type) {
  const auto width = static_cast<std::int64_t>(c10::elementSize(type));
  const auto on_host = torch::TensorOptions(torch::kLong).device(torch::kCPU);
  const torch::Tensor bytes = (torch::arange(elements * width, on_host) * 37 + seed * 101) % 256;
  if (type == torch::kBool) return bytes % 3 == 0;
  return bytes.to(torch::kUInt8).view(type);
}

torch::Tensor of_ranks(int size, const std::function<torch::Tensor(int)>& of_rank) {
  std::vector<torch::Tensor> parts;
  for (int rank = 0; rank < size; ++rank) parts.push_back(bytes_of(of_rank(rank)));
  return torch::cat(parts);
}

torch::Tensor empty_of(std::int64_t elements, at::ScalarType type) {
  return here(bits(elements, 77, type));
}

// Each collective that moves, of the tensors that `in` and `out` make.
template <typename In, typename Out>
void expect_moved(
    const ProcessGroup& group, std::int64_t elements, at::ScalarType type, In in, Out out) {
  const int size = group.size(), rank = group.rank(), last = size - 1;
  const auto piece = [&](int from, int to) { return bits(elements, 10 * from + to, type); };
  const auto joined = [&](const std::function<torch::Tensor(int)>& of_rank) {
    return in(of_ranks(size, of_rank).view(type));
  };
  const auto check = [&](const char* what, const torch::Tensor& output,
                         const torch::Tensor& right) {
    EXPECT_TRUE(bytes_of(output).equal(bytes_of(right)))
        << what << " of " << elements << " " << type << " on rank " << rank;
  };
  const torch::Tensor whole = out(elements * size), one = out(elements);
  group.all_gather(whole, in(piece(rank, 0))).wait();
  check("all_gather", whole, of_ranks(size, [&](int from) { return piece(from, 0); }));
  group.all_to_all(whole, joined([&](int to) { return piece(rank, to); })).wait();
  check("all_to_all", whole, of_ranks(size, [&](int from) { return piece(from, rank); }));
  const torch::Tensor gathered = rank == last ? whole : torch::Tensor();
  group.gather(gathered, in(piece(rank, 1)), last).wait();
  if (rank == last)
    check("gather", whole, of_ranks(size, [&](int from) { return piece(from, 1); }));
  const auto all = rank == last ? joined([&](int to) { return piece(2, to); }) : torch::Tensor();
  group.scatter(one, all, last).wait();
  check("scatter", one, piece(2, rank));
  const torch::Tensor cast = in(piece(rank, 3));
  group.broadcast(cast, last).wait();
  check("broadcast", cast, piece(last, 3));
  if (size == 1) return;
  Work received = group.recv(one, (rank + last) % size);
  group.send(in(piece(rank, 4)), (rank + 1) % size).wait();
  received.wait();
  check("recv", one, piece((rank + last) % size, 4));
}

TEST_P(ContractValues, EveryTypeIsMovedBitForBit) {
  run([](ProcessGroup group) {
    for (const auto type : kMoved)
      for (const std::int64_t elements : {0, 1, 7})
        expect_moved(
            group, elements, type, here, [&](std::int64_t count) { return empty_of(count, type); });
    for (const auto type : {torch::kShort, torch::kFloat8_e5m2, torch::kBool})
      expect_moved(
          group, kLong, type, here, [&](std::int64_t count) { return empty_of(count, type); });
  });
}

// As columns of a matrix, the others of which are left alone.
torch::Tensor in_a_column(const torch::Tensor& values) {
  return here(torch::stack({values, values, values}, 1)).select(1, 1);
}

TEST_P(ContractValues, InputsAndOutputsMayHaveStrides) {
  run([](ProcessGroup group) {
    for (const auto type : {torch::kFloat, torch::kHalf, torch::kShort, torch::kBool}) {
      for (const std::int64_t elements : {1, 7}) {
        expect_moved(group, elements, type, in_a_column,
            [&](std::int64_t count) { return in_a_column(bits(count, 77, type)); });
      }
      const torch::Tensor matrix = here(torch::zeros({5, 2}, torch::TensorOptions(type)));
      const torch::Tensor column = matrix.select(1, 1), other = matrix.select(1, 0);
      column.fill_(1);
      group.all_reduce(column, ReduceOp::kMax).wait();
      group.reduce(column, 0, ReduceOp::kMin).wait();
      group
          .reduce_scatter(
              column, in_a_column(torch::ones({5 * group.size()}, type).cpu()), ReduceOp::kProduct)
          .wait();
      EXPECT_TRUE(column.eq(1).all().item<bool>()) << type;
      EXPECT_TRUE(other.eq(0).all().item<bool>()) << type;
    }
  });
}

// LibTorch negates such a view when it is read; its memory holds the other sign.
TEST_P(ContractValues, AViewThatIsNegatedWhenReadIsSentAsItReads) {
  run([](ProcessGroup group) {
    if (testing::on_devices()) return;
    for (const int elements : {1, 2}) {
      const torch::Tensor pairs = torch::ones({elements, 2});
      const torch::Tensor negated = torch::imag(torch::conj(torch::view_as_complex(pairs)));
      ASSERT_TRUE(negated.is_neg());
      const torch::Tensor all = torch::empty({group.size(), elements});
      group.all_gather(all, negated).wait();
      EXPECT_TRUE(all.eq(-1).all().item<bool>()) << all;
      group.all_reduce(negated).wait();
      EXPECT_TRUE(negated.eq(-group.size()).all().item<bool>()) << negated;
      EXPECT_TRUE(pairs.select(1, 0).eq(1).all().item<bool>()) << pairs;
    }
  });
}

/// A reduction of one value of each rank, by each of the collectives that reduce.
class Reduced {
 public:
  Reduced(ProcessGroup group, at::ScalarType type, std::int64_t elements)
      : group_(std::move(group)), type_(type), elements_(elements) {}

  /// Expects the result at all elements, as far as the type can hold it; NaN is NaN.
  void expect(double own, ReduceOp op, double result) const {
    const torch::Tensor tensor = filled(own, elements_), other = filled(own, elements_);
    group_.all_reduce(tensor, op).wait();
    check("all_reduce", tensor, result);
    const int root = group_.size() - 1;
    group_.reduce(other, root, op).wait();
    check("reduce", other, group_.rank() == root ? result : own);
    const torch::Tensor piece = filled(0, elements_);
    group_.reduce_scatter(piece, filled(own, elements_ * group_.size()), op).wait();
    check("reduce_scatter", piece, result);
  }

 private:
  torch::Tensor filled(double value, std::int64_t elements) const {
    return here(
        torch::full({elements}, value, torch::dtype(torch::kDouble).device(torch::kCPU)).to(type_));
  }
  // Also the sign of a zero counts.
  void check(const char* what, const torch::Tensor& tensor, double result) const {
    const torch::Tensor found = tensor.cpu().to(torch::kDouble),
                        right = filled(result, elements_).cpu().to(torch::kDouble);
    const bool same = std::isnan(result)
                          ? found.isnan().all().item<bool>()
                          : found.equal(right) && found.signbit().equal(right.signbit());
    EXPECT_TRUE(same) << what << " of " << elements_ << " " << type_ << " on rank " << group_.rank()
                      << ": " << found.slice(0, 0, 3) << " in place of " << right.slice(0, 0, 1);
  }

  ProcessGroup group_;
  at::ScalarType type_;
  std::int64_t elements_;
};

void for_each_length(const ProcessGroup& group, at::ScalarType type,
    const std::function<void(const Reduced&)>& body) {
  for (const std::int64_t elements : {std::int64_t{3}, kLong}) body(Reduced(group, type, elements));
}

TEST_P(ContractValues, ANaNOfAnyRankShowsOnAll) {
  run([](ProcessGroup group) {
    for (const auto type : kReals) {
      for_each_length(group, type, [&](const Reduced& reduced) {
        for (int whose = 0; whose < group.size(); ++whose) {
          const double own = group.rank() == whose ? kNaN : group.rank() + 1;
          for (const auto op : {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kProduct})
            reduced.expect(own, op, kNaN);
          if (!is_ours(group)) continue;
          reduced.expect(own, ReduceOp::kMin, kNaN);
          reduced.expect(own, ReduceOp::kMax, kNaN);
        }
      });
    }
  });
}

TEST_P(ContractValues, InfinitiesAreNumbers) {
  run([](ProcessGroup group) {
    const bool is_alone = group.size() == 1, is_first = group.rank() == 0;
    for (const auto type : kReals) {
      for_each_length(group, type, [&](const Reduced& reduced) {
        const double one = is_first ? kInfinity : 1, two = is_first ? kInfinity : -kInfinity;
        reduced.expect(one, ReduceOp::kSum, kInfinity);
        reduced.expect(one, ReduceOp::kMean, kInfinity);
        reduced.expect(one, ReduceOp::kMax, kInfinity);
        reduced.expect(one, ReduceOp::kMin, is_alone ? kInfinity : 1);
        reduced.expect(two, ReduceOp::kSum, is_alone ? kInfinity : kNaN);
        reduced.expect(two, ReduceOp::kMax, kInfinity);
        reduced.expect(two, ReduceOp::kMin, is_alone ? kInfinity : -kInfinity);
      });
    }
  });
}

TEST_P(ContractValues, AZeroKeepsItsSign) {
  run([](ProcessGroup group) {
    for (const auto type : kReals) {
      for_each_length(group, type, [&](const Reduced& reduced) {
        for (const auto op : {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMin, ReduceOp::kMax})
          reduced.expect(-0.0, op, -0.0);
        reduced.expect(
            group.rank() == 0 ? -0.0 : 0.0, ReduceOp::kSum, group.size() == 1 ? -0.0 : 0.0);
      });
    }
  });
}

// A sum of all that a type can hold may pass through one that it cannot.
TEST_P(ContractValues, C11SixteenBitsAreReducedInMore) {
  run([](ProcessGroup group) {
    if (!is_ours(group)) return;
    const int size = group.size(), rank = group.rank();
    const auto expect = [&](at::ScalarType type, ReduceOp op, const std::vector<float>& values,
                            bool is_mean = false) {
      const auto rounded = [&](float value) {
        return torch::full({}, value, torch::dtype(torch::kFloat).device(torch::kCPU))
            .to(type)
            .to(torch::kFloat)
            .item<float>();
      };
      float result = rounded(values[0]);
      for (int other = 1; other < size; ++other) {
        const float value = rounded(values[static_cast<std::size_t>(other)]);
        result = op == ReduceOp::kProduct ? result * value : result + value;
      }
      if (is_mean) result /= static_cast<float>(size);
      for_each_length(group, type, [&](const Reduced& reduced) {
        reduced.expect(values[static_cast<std::size_t>(rank)], op, result);
      });
    };
    const float tiny = std::ldexp(1.0F, -24);  // the smallest half
    expect(torch::kHalf, ReduceOp::kSum, {60000, 60000, -60000, -60000});
    expect(torch::kHalf, ReduceOp::kSum, {2048, 1, 1, 1});
    expect(torch::kHalf, ReduceOp::kProduct, {300, 300, 0.0625F, 0.125F});
    expect(torch::kBFloat16, ReduceOp::kSum, {256, 1, 1, 1});
    expect(torch::kBFloat16, ReduceOp::kSum, {-3e38F, -3e38F, -3e38F, -3e38F});
    for (const float value : {60000.0F, 65504.0F, tiny, 3 * tiny})
      expect(torch::kHalf, ReduceOp::kMean, {value, value, value, value}, true);
    for (const float value : {256.0F, 1e-40F})
      expect(torch::kBFloat16, ReduceOp::kMean, {value, value, value, value}, true);
  });
}

TEST_P(ContractValues, WholeNumbersWrapAround) {
  run([](ProcessGroup group) {
    const auto on_host = torch::TensorOptions(torch::kLong).device(torch::kCPU);
    for (const auto type : kNumberTypes) {
      if (c10::isFloatingType(type)) continue;
      for (const std::int64_t elements : {std::int64_t{3}, kLong}) {
        const torch::Tensor large = torch::full({elements}, 0x7070707070707070, on_host).to(type);
        torch::Tensor sum = large.to(torch::kLong).clone(), product = sum.clone();
        for (int rank = 1; rank < group.size(); ++rank) {
          sum += large.to(torch::kLong);
          product *= large.to(torch::kLong);
        }
        const torch::Tensor added = here(large.clone()), multiplied = here(large.clone());
        group.all_reduce(added).wait();
        group.all_reduce(multiplied, ReduceOp::kProduct).wait();
        EXPECT_TRUE(added.cpu().equal(sum.to(type))) << type << " " << elements;
        EXPECT_TRUE(multiplied.cpu().equal(product.to(type))) << type << " " << elements;
      }
    }
  });
}

// Whatever the bits are, NaN among them, all ranks hold the same ones afterwards.
TEST_P(ContractValues, AllRanksHoldTheSameBits) {
  run([](ProcessGroup group) {
    for (const auto type : kNumberTypes) {
      for (const auto op : {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax}) {
        for (const std::int64_t elements : {std::int64_t{0}, std::int64_t{5}, kLong}) {
          const torch::Tensor tensor = here(bits(elements, group.rank(), type));
          group.all_reduce(tensor, op).wait();
          const torch::Tensor all = empty_of(elements * group.size(), type);
          group.all_gather(all, tensor).wait();
          const torch::Tensor rows = bytes_of(all).view({group.size(), -1});
          for (int rank = 1; rank < group.size(); ++rank)
            EXPECT_TRUE(rows[rank].equal(rows[0])) << type << " " << elements << " " << rank;
        }
      }
    }
  });
}

TEST_P(ContractValues, NothingIsReducedToNothing) {
  run([](ProcessGroup group) {
    for (const auto type : kNumberTypes) {
      const torch::Tensor nothing = empty_of(0, type);
      for (const auto op : {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax}) {
        group.all_reduce(nothing, op).wait();
        group.reduce(nothing, 0, op).wait();
        group.reduce_scatter(nothing, empty_of(0, type), op).wait();
      }
    }
  });
}

// While a long reduction goes on, other calls wait for their turn.
TEST_P(ContractValues, CollectivesBehindALongReductionKeepTheirOrder) {
  run([](ProcessGroup group) {
    const int size = group.size(), rank = group.rank();
    const auto filled = [](std::int64_t elements, int value, at::ScalarType type) {
      return here(torch::full({elements}, value, torch::dtype(type).device(torch::kCPU)));
    };
    std::vector<torch::Tensor> halves, casts, sums;
    std::vector<Work> works;
    for (int i = 0; i < 20; ++i) {
      halves.push_back(filled(kLong, i + rank, torch::kHalf));
      casts.push_back(filled(3, 10 * i + rank, torch::kShort));
      sums.push_back(filled(3, 10 * i + rank, torch::kFloat));
      works.push_back(group.all_reduce(halves.back()));
      works.push_back(group.broadcast(casts.back(), i % size));
      works.push_back(group.all_reduce(sums.back()));
    }
    group.barrier().wait();
    for (std::size_t last = works.size(); last > 0; --last) works[last - 1].wait();
    const int ranks = size * (size - 1) / 2;
    for (int i = 0; i < 20; ++i) {
      const auto at = static_cast<std::size_t>(i);
      EXPECT_TRUE(halves[at].eq(i * size + ranks).all().item<bool>()) << i;
      EXPECT_TRUE(casts[at].eq(10 * i + i % size).all().item<bool>()) << i;
      EXPECT_TRUE(sums[at].eq(10 * i * size + ranks).all().item<bool>()) << i;
    }
  });
}

TEST_P(ContractValues, WhatCannotBeReducedIsRefusedBeforeItBegins) {
  run([](ProcessGroup group) {
    const auto refusal = [&](const torch::Tensor& tensor, ReduceOp op) {
      const torch::Tensor whole =
          torch::cat(std::vector(static_cast<std::size_t>(group.size()), bytes_of(tensor)));
      std::string text =
          testing::message_of<InvalidArgument>([&] { (void)group.all_reduce(tensor, op); });
      EXPECT_NE(
          testing::message_of<InvalidArgument>([&] { (void)group.reduce(tensor, 0, op); }), "");
      EXPECT_NE(testing::message_of<InvalidArgument>([&] {
        (void)group.reduce_scatter(tensor, here(whole.view(tensor.scalar_type())), op);
      }),
          "");
      return text;
    };
    for (const auto type : {torch::kFloat8_e4m3fn, torch::kFloat8_e5m2, torch::kUInt16,
             torch::kUInt32, torch::kUInt64}) {
      EXPECT_THAT(refusal(empty_of(3, type), ReduceOp::kSum),
          ::testing::HasSubstr(concat("elements of type ", c10::toString(type))));
    }
    EXPECT_THAT(refusal(empty_of(3, torch::kShort), ReduceOp::kMean),
        ::testing::HasSubstr("the mean of whole numbers is not one of them: Short"));
    EXPECT_THAT(refusal(empty_of(3, torch::kBFloat16), ReduceOp::kAnd),
        ::testing::HasSubstr("need whole numbers, not BFloat16"));
    const torch::Tensor repeated = here(torch::ones({1})).expand({3});
    EXPECT_THAT(testing::message_of<InvalidArgument>([&] { (void)group.all_reduce(repeated); }),
        ::testing::HasSubstr("several elements in one place of memory"));
    group.barrier().wait();
    const torch::Tensor sum = here(torch::ones({2}));
    group.all_reduce(sum).wait();
    EXPECT_TRUE(sum.eq(group.size()).all().item<bool>());
  });
}

TEST_P(ContractValues, ComplexNumbersAreRefusedWithAdvice) {
  run([](ProcessGroup group) {
    if (testing::on_devices()) return;
    const torch::Tensor one = torch::zeros({2}, torch::kComplexFloat),
                        all = torch::zeros({2 * group.size()}, torch::kComplexFloat);
    const std::function<void()> calls[] = {[&] { (void)group.all_reduce(one); },
        [&] { (void)group.reduce(one, 0); }, [&] { (void)group.broadcast(one, 0); },
        [&] { (void)group.all_gather(all, one); }, [&] { (void)group.reduce_scatter(one, all); },
        [&] { (void)group.all_to_all(all, all); }};
    for (const auto& call : calls)
      EXPECT_THAT(testing::message_of<InvalidArgument>(call), ::testing::HasSubstr("view_as_real"));
    group.barrier().wait();
  });
}

}  // namespace
}  // namespace lockstep
