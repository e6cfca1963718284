// What the remaining ranks learn when one is late, gone, does something else, or fails half-way: in
// a round, in an abort, in the making of memory.

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>

#include "contract.h"
#include "tests/support/message_of.h"
#include "tests/support/shared_flag.h"

#include "lockstep/comm/host_backends.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/core/stopwatch.h"

namespace lockstep {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using testing::message_of;

class HostFailure : public ::testing::TestWithParam<std::string> {
 protected:
  void run(int size, const std::function<void(ProcessGroup)>& body) const {
    testing::run_group(GetParam(), size, body);
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, HostFailure, ::testing::Values("threads", "shm"),
    [](const auto& parameter) { return parameter.param; });

TEST_P(HostFailure, C13TimeoutNamesTheRankTheCollectiveAndTheLimit) {
  run(3, [](ProcessGroup group) {
    group.barrier().wait();
    group.set_timeout(std::chrono::milliseconds(50));
    if (group.rank() == 2) {  // comes only after the others have given up
      ::usleep(400'000);
      EXPECT_THROW(group.all_reduce(torch::ones({4})).wait(), CommError);
      return;
    }
    const std::string text =
        message_of<CommError>([&] { group.all_reduce(torch::ones({4})).wait(); });
    EXPECT_THAT(text, HasSubstr("all_reduce #"));
    EXPECT_THAT(text, HasSubstr("(Float, 4 elements)"));
    EXPECT_THAT(text, HasSubstr("waited 50 ms for rank 2 (last seen in barrier #"));
  });
}

TEST_P(HostFailure, RanksThatCallDifferentCollectivesAreToldBoth) {
  run(2, [](ProcessGroup group) {
    const std::string text = message_of<InvalidArgument>([&] {
      if (group.rank() == 0) group.all_reduce(torch::ones({4})).wait();
      if (group.rank() == 1) group.broadcast(torch::ones({5}), 0).wait();
    });
    EXPECT_THAT(text, HasSubstr("all_reduce of 4 Float elements"));
    EXPECT_THAT(text, HasSubstr("broadcast of 5 Float elements, root 0"));
  });
}

TEST_P(HostFailure, DifferentSizesAreRefusedNotTruncated) {
  run(2, [](ProcessGroup group) {
    const std::string text = message_of<InvalidArgument>(
        [&] { group.all_reduce(torch::ones({4 + group.rank()})).wait(); });
    EXPECT_THAT(text, HasSubstr("all_reduce of 4 Float elements"));
    EXPECT_THAT(text, HasSubstr("all_reduce of 5 Float elements"));
  });
}

TEST_P(HostFailure, MessagesMustMeetTheirKind) {
  run(2, [](ProcessGroup group) {
    const std::string text = message_of<Error>([&] {
      if (group.rank() == 0) group.send(torch::ones({4}), 1, 7).wait();
      if (group.rank() == 0) group.barrier().wait();
      if (group.rank() == 1) group.recv(torch::ones({4}), 0, 8).wait();
    });
    EXPECT_THAT(text, HasSubstr("recv from rank 0, tag 8"));
    EXPECT_THAT(text, HasSubstr("has tag 7"));
  });
}

TEST_P(HostFailure, C17ARankThatLeavesIsNoticedAtOnce) {
  run(3, [](ProcessGroup group) {
    group.barrier().wait();
    if (group.rank() == 1) {  // leaves, but lives on
      group = ProcessGroup();
      ::usleep(500'000);
      return;
    }
    const Stopwatch stopwatch;
    const std::string text = message_of<CommError>([&] { group.barrier().wait(); });
    EXPECT_THAT(text, HasSubstr("rank 1 has left the group"));
    EXPECT_LT(stopwatch.seconds(), 20);  // the group's limit is a minute
  });
}

TEST_P(HostFailure, AbortReachesAllWithItsReason) {
  run(2, [](ProcessGroup group) {
    if (group.rank() == 1) {
      group.abort("the model of rank 1 is another one");
      return;
    }
    const std::string text = message_of<CommError>([&] { group.barrier().wait(); });
    EXPECT_THAT(text, HasSubstr("the model of rank 1 is another one"));
    EXPECT_THROW(group.all_reduce(torch::ones({1})).wait(), CommError)
        << "a failed group stays failed";
  });
}

bool blocks_pipe_signals(const std::filesystem::path& status) {
  std::ifstream file(status);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("SigBlk:")) continue;
    return (std::stoull(line.substr(7), nullptr, 16) >> (SIGPIPE - 1) & 1U) != 0;
  }
  return false;
}

// The one that gives up has a collective under way itself, and lives on until all have noticed.
TEST(GlooFailure, AbortReachesAllAtOnceAndEndsWhatIsUnderWay) {
  testing::SharedFlag told[2];
  testing::run_group("gloo", 3, [&](ProcessGroup group) {
    group.barrier().wait();
    if (group.rank() == 1) {
      Work own = group.all_reduce(torch::ones({4}));
      group.abort("the model of rank 1 is another one");
      EXPECT_THAT(message_of<CommError>([&] { own.wait(); }), HasSubstr("is another one"));
      EXPECT_THAT(
          message_of<CommError>([&] { group.barrier().wait(); }), HasSubstr("is another one"));
      for (auto& flag : told) flag.wait();
      return;
    }
    const Stopwatch stopwatch;
    const std::string text = message_of<CommError>([&] {
      if (group.rank() == 0) group.barrier().wait();
      if (group.rank() == 2) group.recv(torch::ones({4}), 1).wait();
    });
    EXPECT_THAT(text, HasSubstr("another rank has ended or given up"));
    EXPECT_LT(stopwatch.seconds(), 30) << "the group's limit is a minute";
    told[group.rank() / 2].raise();
  });
}

// A write to a connection that the other side has closed raises SIGPIPE, which ends a C++ program.
TEST(GlooFailure, AClosedConnectionDoesNotEndTheProcess) {
  testing::SharedFlag closed;
  testing::run_group("gloo", 2, [&](ProcessGroup group) {
    group.barrier().wait();
    if (group.rank() == 1) {
      group = ProcessGroup();
      return closed.raise();
    }
    int threads = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      if (task.path().filename() == std::to_string(::getpid())) continue;
      EXPECT_TRUE(blocks_pipe_signals(task.path() / "status"));
      ++threads;
    }
    EXPECT_GE(threads, 2);
    closed.wait();
    std::vector<Work> works;
    EXPECT_THROW(
        {
          for (int i = 0; i < 1000; ++i) works.push_back(group.send(torch::ones({1000}), 1));
          for (Work& work : works) work.wait();
        },
        CommError);
  });
}

TEST(ThreadFailure, TheFirstExceptionOfARankReachesTheCaller) {
  const std::string text = message_of<std::runtime_error>([] {
    run_ranks(3, [](ProcessGroup group) {
      if (group.rank() == 2) throw std::runtime_error("no such file");
      EXPECT_THROW(group.barrier().wait(), CommError);
    });
  });
  EXPECT_EQ(text, "no such file");
}

TEST(ThreadFailure, FewerThanOneRankIsRefused) {
  EXPECT_THROW(run_ranks(0, [](ProcessGroup) {}), InvalidArgument);
}

class KilledRank : public ::testing::TestWithParam<testing::ContractParameters> {};
INSTANTIATE_TEST_SUITE_P(Backends, KilledRank,
    ::testing::Values(testing::ContractParameters{"shm", 2},
        testing::ContractParameters{"hosts_0011", 4}, testing::ContractParameters{"hosts_0001", 4}),
    testing::contract_name);

// Each rank in turn dies in the midst of collectives; the limit of the group is a minute.
TEST_P(KilledRank, EndsTheWaitsOfAll) {
  const std::string backend = std::get<0>(GetParam());
  const int size = std::get<1>(GetParam());
  for (int victim = 0; victim < size; ++victim) {
    testing::SharedText heard[4];
    const auto body = [&](ProcessGroup group) {
      const torch::Tensor tensor = group.empty(1 << 20, torch::kFloat).zero_();
      for (int step = 0; step < 1000; ++step) {
        if (group.rank() == victim && step == 5) ::raise(SIGKILL);
        try {
          group.all_reduce(tensor).wait();
        } catch (const CommError& error) {
          return heard[group.rank()].write(error.what());
        }
      }
    };
    EXPECT_EQ(message_of<std::runtime_error>([&] { testing::run_group(backend, size, body); }),
        concat("rank ", victim, ": signal 9"));
    for (int rank = 0; rank < size; ++rank) {
      if (rank == victim) continue;
      EXPECT_THAT(heard[rank].text(), AnyOf(HasSubstr("has ended"), HasSubstr("has left")))
          << "rank " << rank << " after the end of " << victim;
      if (backend == "shm") {
        EXPECT_THAT(heard[rank].text(), HasSubstr(concat("rank ", victim, " (process ")));
        EXPECT_THAT(heard[rank].text(), HasSubstr(") has ended"));
      }
    }
  }
}

using host::Exposure;
using host::SharedRegion;

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
  std::shared_ptr<Backend> make_subgroup(const std::vector<int>&) override { return nullptr; }
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
  Work begin(const CollectiveCall& call) override {
    Work work = ThreadBackend::begin(call);
    if (call.kind != Operation::kBarrier) return work;
    work.wait();
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
