#include "lockstep/train/state/whole_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <utility>
#include <vector>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/nn/weights.h"

namespace lockstep {
namespace {

TEST(ParametersHash, EveryBitOfEveryElementCounts) {
  std::set<std::uint64_t> seen;
  torch::Tensor bits = at::zeros({7}, torch::kInt);  // 28 bytes: a last word that is not full
  seen.insert(parameters_hash({bits}));
  for (int element = 0; element < 7; ++element) {
    for (int bit = 0; bit < 32; ++bit) {
      bits.zero_();
      bits.data_ptr<int>()[element] = static_cast<int>(1u << bit);
      seen.insert(parameters_hash({bits}));
    }
  }
  EXPECT_EQ(seen.size(), 1u + 7u * 32u);
}

TEST(ParametersHash, OrderAndBordersCount) {
  const torch::Tensor whole = at::arange(6, torch::kInt);
  const torch::Tensor left = whole.slice(0, 0, 2), right = whole.slice(0, 2, 6);
  EXPECT_NE(parameters_hash({left, right}), parameters_hash({right, left}));
  EXPECT_NE(parameters_hash({left, right}), parameters_hash({whole}));
}

TEST(ParametersHash, MemoryOrderDoesNotCount) {
  const torch::Tensor plain = at::arange(2 * 3 * 4 * 5, torch::kFloat).reshape({2, 3, 4, 5});
  EXPECT_EQ(parameters_hash({plain}),
      parameters_hash({plain.contiguous(at::MemoryFormat::ChannelsLast)}));
}

TEST(ParametersHash, RanksThatAgreeGetTheHash) {
  run_ranks(2, [](ProcessGroup world) {
    const std::vector<torch::Tensor> same = {at::arange(10, torch::kFloat)};
    EXPECT_EQ(agreed_parameters_hash(same, world, ProcessGroup()).size(), 16u);
  });
}

TEST(ParametersHash, ARankThatDiffersIsNamedOnAllRanks) {
  run_ranks(3, [](ProcessGroup world) {
    torch::Tensor values = at::arange(10, torch::kFloat);
    if (world.rank() == 2) values[9] = 9.0000010f;
    const auto agree = [&] { agreed_parameters_hash({values}, world, ProcessGroup()); };
    EXPECT_THAT(testing::message_of<Error>(agree), ::testing::HasSubstr("on rank 2"));
  });
}

// What a stage may hold: a channels-last weight, a counter, half numbers, nothing.
nn::NamedTensors state_of_stage(int stage) {
  const std::string prefix = concat(stage, ".");
  const auto weight = at::arange(2 * 3 * 4 * 5, torch::kFloat).view({2, 3, 4, 5}) + stage;
  nn::NamedTensors state("Tensor");
  state.insert(prefix + "weight", weight.contiguous(at::MemoryFormat::ChannelsLast));
  state.insert(prefix + "bias", at::full({stage + 1}, stage + 0.5, torch::kBFloat16));
  state.insert(prefix + "num_batches_tracked", at::full({}, stage, torch::kLong));
  state.insert(prefix + "empty", at::empty({0, 3}, torch::kFloat));
  return state;
}

TEST(GatheredState, BringsAllStagesToTheFirstRank) {
  for (int ranks = 1; ranks <= 3; ++ranks) {
    run_ranks(ranks, [ranks](const ProcessGroup& stages) {
      const auto all = gathered_state(state_of_stage(stages.rank()), stages);
      if (stages.rank() != 0) {
        EXPECT_TRUE(all.is_empty());
        return;
      }
      ASSERT_EQ(all.size(), 4U * static_cast<std::size_t>(ranks));
      std::size_t place = 0;
      for (int stage = 0; stage < ranks; ++stage) {
        for (const auto& item : state_of_stage(stage)) {
          EXPECT_EQ(all[place].key(), item.key());
          const torch::Tensor& value = all[place].value();
          EXPECT_EQ(value.scalar_type(), item.value().scalar_type()) << item.key();
          EXPECT_TRUE(value.equal(item.value())) << item.key();
          ++place;
        }
      }
    });
  }
}

TEST(GatheredState, TakesAStageWithoutTensors) {
  run_ranks(2, [](const ProcessGroup& stages) {
    const auto own = stages.rank() == 0 ? state_of_stage(0) : nn::NamedTensors("Tensor");
    const auto all = gathered_state(own, stages);
    EXPECT_EQ(all.size(), stages.rank() == 0 ? 4U : 0U);
  });
}

TEST(GatheredState, SendsParametersThatWantGradients) {
  run_ranks(2, [](const ProcessGroup& stages) {
    nn::NamedTensors own("Tensor");
    own.insert(
        concat("w", stages.rank()), at::full({2}, 3.0, torch::kFloat).set_requires_grad(true));
    const auto all = gathered_state(own, stages);
    if (stages.rank() == 0) {
      EXPECT_TRUE(all["w1"].detach().equal(at::full({2}, 3.0, torch::kFloat)));
    }
  });
}

void expect_zeroed_and_scattered(
    const nn::NamedTensors& all, const ProcessGroup& stages, const ProcessGroup& replicas) {
  const nn::NamedTensors own = state_of_stage(stages.rank());
  for (const auto& item : own) item.value().zero_();
  scatter_state(all, own, stages, replicas);
  for (const auto& item : state_of_stage(stages.rank()))
    EXPECT_TRUE(own[item.key()].equal(item.value())) << item.key();
}

TEST(ScatteredState, GivesEachStageItsOwn) {
  for (int ranks = 1; ranks <= 3; ++ranks) {
    run_ranks(ranks, [](const ProcessGroup& stages) {
      const auto all = gathered_state(state_of_stage(stages.rank()), stages);
      expect_zeroed_and_scattered(all, stages, ProcessGroup());
    });
  }
}

TEST(ScatteredState, GivesAllReplicasTheSame) {
  run_ranks(3, [](const ProcessGroup& replicas) {
    nn::NamedTensors all("Tensor");
    if (replicas.rank() == 0) all = state_of_stage(0);
    expect_zeroed_and_scattered(all, ProcessGroup(), replicas);
  });
}

// Three tensors of which each rank of a group has elements, one of them none, and a buffer.
TensorRanges ranges_of_rank(int rank, int ranks) {
  const auto range = [&](std::vector<std::int64_t> whole, std::int64_t elements) {
    const bool is_matrix = whole.size() == 2;
    return TensorRange{.whole = std::move(whole),
        .order = is_matrix ? std::vector<std::int64_t>{1, 0} : std::vector<std::int64_t>(),
        .begin = elements * rank / ranks,
        .end = elements * (rank + 1) / ranks};
  };
  return {{"w", range({3, 5}, 15)}, {"one", range({}, 1)}, {"half", range({4}, 4)}};
}

nn::NamedTensors shared_state(const TensorRanges& ranges) {
  nn::NamedTensors state("Tensor");
  const auto add = [&](const char* name, const torch::Tensor& whole) {
    const auto found = ranges.find(name);
    if (found == ranges.end()) {
      state.insert(name, whole);
    } else if (const TensorRange& range = found->second; range.size() > 0) {
      const torch::Tensor row =
          (range.order.empty() ? whole : whole.permute(range.order)).flatten();
      state.insert(name, row.slice(0, range.begin, range.end).view(range.sizes()).clone());
    }
  };
  add("half", at::arange(4, torch::kBFloat16));
  add("one", at::full({}, 7, torch::kLong));
  add("w", at::arange(15, torch::kFloat).view({3, 5}));
  add("mean", at::full({2}, 0.5, torch::kFloat));
  return state;
}

TEST(SharedWeights, AreOneFileOfWholeTensors) {
  const testing::TemporaryFolder folder;
  const auto expected = folder.path() / "expected.safetensors",
             made = folder.path() / "made.safetensors";
  nn::save_weights(shared_state({}), expected, {{"step", "3"}});
  for (int ranks = 1; ranks <= 4; ++ranks) {
    run_ranks(ranks, [&](const ProcessGroup& group) {
      const auto ranges = ranges_of_rank(group.rank(), ranks);
      const auto state = shared_state(ranges);
      save_shared_weights(state, ranges, group, group.rank() == 0 ? made : "", {{"step", "3"}});
      for (const auto& item : state) item.value().zero_();
      load_shared_weights(state, ranges, group, group.rank() == 0 ? made : "");
      for (const auto& item : shared_state(ranges))
        EXPECT_TRUE(state[item.key()].equal(item.value())) << item.key();
    });
    EXPECT_EQ(testing::contents(made), testing::contents(expected)) << ranks;
  }
}

TEST(SharedWeights, AFileThatCannotBeWrittenOrReadIsAnErrorAndNoRankWaits) {
  run_ranks(2, [](const ProcessGroup& group) {
    const auto ranges = ranges_of_rank(group.rank(), 2);
    const auto state = shared_state(ranges);
    const auto save = [&] { save_shared_weights(state, ranges, group, "/none/w.safetensors", {}); };
    if (group.rank() == 0) {
      EXPECT_ANY_THROW(save());
    } else {
      save();
    }
    EXPECT_THROW(load_shared_weights(state, ranges, group, "/none/w.safetensors"), DataError);
  });
}

TEST(SharedWeights, ElementsThatNoRankHasAreRefused) {
  run_ranks(2, [](const ProcessGroup& group) {
    TensorRanges ranges{
        {"w", {.whole = {8}, .begin = 5 * group.rank(), .end = 4 * group.rank() + 4}}};
    nn::NamedTensors state("Tensor");
    state.insert("w", at::zeros({ranges["w"].size()}, torch::kFloat));
    const auto message = testing::message_of<InvalidArgument>(
        [&] { save_shared_weights(state, ranges, group, "", {}); });
    EXPECT_NE(message.find("the ranks share w, but elements from 4 on"), std::string::npos)
        << message;
  });
}

}  // namespace
}  // namespace lockstep
