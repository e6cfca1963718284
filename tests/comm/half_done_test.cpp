// Ranks that fail half-way through something: in a round, in an abort, in the making of memory.

#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdexcept>
#include <thread>

#include "group_factory.h"
#include "tests/support/message_of.h"
#include "tests/support/shared_flag.h"

#include "lockstep/comm/host_backends.h"
#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using host::Exposure;
using host::SharedRegion;
using ::testing::HasSubstr;
using testing::message_of;

/// Fails as LibTorch or the allocator may, with an error that is not one of ours.
class SpoiledSpace : public host::AddressSpace {
 public:
  std::optional<Exposure> expose(const void*, std::size_t) const override {
    throw std::runtime_error("no memory for this");
  }
  std::shared_ptr<std::byte> resolve(int, const Exposure&) const override { return nullptr; }
  torch::Tensor empty(
      std::int64_t, const torch::TensorOptions&, const host::ExchangeText&) override {
    return {};
  }
};

class SpoiledBackend : public host::HostBackend {
 public:
  SpoiledBackend(std::shared_ptr<SharedRegion> region, int rank)
      : HostBackend(std::move(region), std::make_unique<SpoiledSpace>(), rank) {}
  std::string name() const override { return "spoiled"; }
  std::shared_ptr<Backend> subgroup(const std::vector<int>&) override { return nullptr; }
};

TEST(HalfDone, AnyErrorInARoundFailsTheGroup) {
  const auto region = ThreadBackend::make_region(2);
  SpoiledBackend spoiled(region, 0);
  ThreadBackend other(region, 1);
  const torch::Tensor tensor = torch::ones({100'000});  // small ones are not shown, but copied
  Work begun = other.all_reduce(tensor, ReduceOp::kSum);
  EXPECT_EQ(
      message_of<std::runtime_error>([&] { spoiled.all_reduce(tensor, ReduceOp::kSum).wait(); }),
      "no memory for this");
  EXPECT_EQ(message_of<CommError>([&] { begun.wait(); }), "no memory for this");
}

// The first word of the memory says how far an abort has come: 1 while the reason is written.
TEST(HalfDone, AnAborterThatDiesIsHeardAllTheSame) {
  const std::size_t bytes = SharedRegion::bytes_for(2);
  const auto file = host::make_memory_file(bytes);
  const auto dead = host::Mapping::shared(file.descriptor, bytes);
  SharedRegion region(host::Mapping::shared(file.descriptor, bytes), 2);
  EXPECT_FALSE(region.aborted());
  const std::uint32_t writing = 1;
  std::memcpy(dead.data(), &writing, sizeof(writing));
  EXPECT_TRUE(region.aborted());
  EXPECT_THAT(region.abort_reason(), HasSubstr("a rank gave up"));
}

/// A backend that is late after a barrier, by as much as the flag says.
class LateBackend : public ThreadBackend {
 public:
  LateBackend(std::shared_ptr<SharedRegion> region, int rank, testing::SharedFlag& flag)
      : ThreadBackend(std::move(region), rank), flag_(flag) {}
  Work barrier() override {
    ThreadBackend::barrier().wait();
    flag_.wait();
    return {};
  }

 private:
  testing::SharedFlag& flag_;
};

// Rank 1 gives up in the middle of a split. Rank 0, which has made the memory of the subgroup, ends
// before rank 2 comes for it.
TEST(HalfDone, MemoryOfASubgroupThatWasGivenUpIsNotTouched) {
  const auto region = ThreadBackend::make_region(3);
  testing::SharedFlag ended;
  std::jthread first([&] {
    ThreadBackend backend(region, 0);
    EXPECT_THROW(backend.subgroup({0, 1, 2}), CommError);
    ended.raise();
  });
  std::jthread second([&] {
    ThreadBackend backend(region, 1);
    backend.barrier().wait();
    region->abort("no such file");
    ended.wait();
  });
  LateBackend last(region, 2, ended);
  EXPECT_EQ(message_of<CommError>([&] {
    last.subgroup({0, 1, 2});
  }),
      "subgroup: rank 0 has given up");
}

TEST(HalfDone, RanksThatWantDifferentSharedTensorsAreToldBoth) {
  testing::run_group("shm", 2, [](ProcessGroup group) {
    const std::string text =
        message_of<InvalidArgument>([&] { (void)group.empty(10 + group.rank(), torch::kFloat); });
    EXPECT_THAT(text, HasSubstr("rank 0 for 10 float, rank 1 for 11 float"));
    const auto type = group.rank() == 0 ? torch::kFloat : torch::kInt;
    EXPECT_THAT(message_of<InvalidArgument>([&] { (void)group.empty(4, type); }),
        HasSubstr("rank 0 for 4 float, rank 1 for 4 int"));
    const torch::Tensor tensor = group.empty(4, torch::kFloat).fill_(1);
    group.all_reduce(tensor).wait();  // the group is as good as before
    EXPECT_TRUE(tensor.equal(torch::full({4}, 2.0F)));
  });
}

// Rank 1 copies between its own tensor and the shared one of rank 0, in several rounds.
TEST(HalfDone, MemoryThatARankHasReleasedStaysUntilItsWorkIsDone) {
  testing::SharedFlag begun, released;
  testing::run_group("shm", 2, [&](ProcessGroup group) {
    constexpr std::int64_t kElements = 1'000'000;
    torch::Tensor shared = group.empty(kElements, torch::kFloat);
    torch::Tensor tensor = group.rank() == 0 ? shared : torch::empty({kElements});
    tensor.fill_(1.F + static_cast<float>(group.rank()));
    Work work;
    if (group.rank() == 0) {
      work = group.all_reduce(tensor);
      begun.raise();
      released.wait();
    } else {
      begun.wait();
      work = group.all_reduce(tensor);  // has seen rank 0's memory, and cannot end without rank 0
      shared.reset();
      released.raise();
    }
    work.wait();
    EXPECT_TRUE(tensor.eq(3).all().item<bool>());
  });
}

}  // namespace
}  // namespace lockstep
