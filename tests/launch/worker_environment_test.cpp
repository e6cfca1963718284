#include "lockstep/launch/ranks/worker_environment.h"

#include <gmock/gmock.h>

namespace lockstep::launch {
namespace {

using ::testing::Contains;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::StartsWith;

TEST(WorkerEnvironment, NamesThePlaceAsTorchrunDoes) {
  const LaunchOptions options{.workers = 4,
      .nodes = 3,
      .node_rank = 2,
      .master_address = "node0",
      .run_id = "job",
      .role = "trainer",
      .max_restarts = 4,
      .earlier_restarts = 1,
      .signals = {SIGTERM}};
  const RankPlan plan{{.restart = 1, .death_ns = 17}, 29500, "/proc/1/fd/2", 1, "/tmp/error"};
  const std::vector<std::string> expected{"RANK=9", "LOCAL_RANK=1", "GROUP_RANK=2", "ROLE_RANK=9",
      "ROLE_NAME=trainer", "WORLD_SIZE=12", "LOCAL_WORLD_SIZE=4", "GROUP_WORLD_SIZE=3",
      "ROLE_WORLD_SIZE=12", "MASTER_ADDR=node0", "MASTER_PORT=29500",
      "TORCHELASTIC_RESTART_COUNT=2", "TORCHELASTIC_MAX_RESTARTS=5", "TORCHELASTIC_RUN_ID=job",
      "TORCHELASTIC_USE_AGENT_STORE=False", "TORCHELASTIC_ERROR_FILE=/tmp/error",
      "TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM", "LOCKSTEP_PROGRESS=/proc/1/fd/2",
      "LOCKSTEP_DEATH_NS=17", "TORCH_NCCL_ASYNC_ERROR_HANDLING=1", "OMP_NUM_THREADS=1"};
  EXPECT_THAT(worker_environment({"HOME=/root"}, options, plan), IsSupersetOf(expected));
  EXPECT_THAT(worker_environment({"HOME=/root"}, options, plan), Contains("HOME=/root"));
}

TEST(WorkerEnvironment, OfASpareHasNoPlace) {
  const auto environment = spare_environment({"HOME=/root", "RANK=3", "LOCKSTEP_SECRET=s"}, 2, 7);
  EXPECT_THAT(environment, IsSupersetOf(std::vector<std::string>{
                               "HOME=/root", "LOCKSTEP_SPARE=7", "OMP_NUM_THREADS=1"}));
  for (const auto& [name, value] : worker_variables({}, {}))
    EXPECT_THAT(environment, Not(Contains(StartsWith(name + "=")))) << name;
}

TEST(WorkerEnvironment, NamesTheWayToTheLaunchersStoreAndNotTheSecret) {
  const LaunchOptions options{.workers = 2,
      .span = RankSpan{.first_rank = 3,
          .world_size = 5,
          .store = "node0:29400",
          .store_key = "00ff",
          .generation = 4,
          .node_address = "10.0.0.2"}};
  RankPlan second;
  second.local_rank = 1;
  const auto environment = worker_environment({"LOCKSTEP_SECRET=of the nodes"}, options, second);
  EXPECT_THAT(environment,
      IsSupersetOf({"RANK=4", "WORLD_SIZE=5", "LOCKSTEP_STORE=node0:29400",
          "LOCKSTEP_STORE_KEY=00ff", "LOCKSTEP_GENERATION=4", "LOCKSTEP_NODE_ADDRESS=10.0.0.2"}));
  EXPECT_THAT(environment, Not(Contains(StartsWith("LOCKSTEP_SECRET"))));
  const auto alone =
      worker_environment({"LOCKSTEP_STORE=outer:1", "LOCKSTEP_GENERATION=1"}, {}, {});
  EXPECT_THAT(alone, Not(Contains(StartsWith("LOCKSTEP_STORE"))));
  EXPECT_THAT(alone, Not(Contains(StartsWith("LOCKSTEP_GENERATION"))));
}

TEST(WorkerEnvironment, KeepsWhatTheUserSet) {
  const auto environment = worker_environment(
      {"OMP_NUM_THREADS=8", "TORCH_NCCL_ASYNC_ERROR_HANDLING=0", "PYTHONUNBUFFERED="},
      {.workers = 2}, {});
  EXPECT_THAT(environment, Contains("OMP_NUM_THREADS=8"));
  EXPECT_THAT(environment, Contains("TORCH_NCCL_ASYNC_ERROR_HANDLING=0"));
  EXPECT_THAT(environment, Contains("PYTHONUNBUFFERED="));
  EXPECT_THAT(environment, Not(Contains("OMP_NUM_THREADS=1")));
}

TEST(WorkerEnvironment, ReplacesTheRankOfAnOuterLauncher) {
  const auto environment = worker_environment({"RANK=7", "WORLD_SIZE=9", "RANKS=5"}, {}, {});
  EXPECT_THAT(environment, Contains("RANK=0"));
  EXPECT_THAT(environment, Contains("WORLD_SIZE=1"));
  EXPECT_THAT(environment, Contains("RANKS=5"));
  EXPECT_THAT(worker_environment({"LOCKSTEP_DEATH_NS=9"}, {}, {}),
      Not(Contains(StartsWith("LOCKSTEP_DEATH_NS"))));
  EXPECT_THAT(environment, Not(Contains("RANK=7")));
}

TEST(WorkerEnvironment, LeavesAllCoresToASingleWorker) {
  EXPECT_THAT(worker_environment({}, {}, {}), Not(Contains(StartsWith("OMP_NUM_THREADS="))));
}

TEST(WorkerEnvironment, ShortensOpenMPsWaitsUnlessTheUserHasSetThem) {
  EXPECT_THAT(worker_environment({}, {}, {}), Contains(StartsWith("GOMP_SPINCOUNT=")));
  EXPECT_THAT(spare_environment({}, 1, 7), Contains(StartsWith("GOMP_SPINCOUNT=")));
  EXPECT_THAT(worker_environment({"OMP_WAIT_POLICY=active"}, {}, {}),
      Not(Contains(StartsWith("GOMP_SPINCOUNT="))));
  EXPECT_EQ(with_openmp_settings({"GOMP_SPINCOUNT=7"}, 2, 2),
      std::vector<std::string>{"GOMP_SPINCOUNT=7"});
}

TEST(WorkerEnvironment, HasAsManyThreadsAsAQuotaLeaves) {
  EXPECT_THAT(with_openmp_settings({}, 3, 8), Contains("OMP_NUM_THREADS=3"));
  EXPECT_THAT(with_openmp_settings({}, 8, 8), Not(Contains(StartsWith("OMP_NUM_THREADS="))));
  for (const char* users : {"OMP_NUM_THREADS=5", "MKL_NUM_THREADS=5"})
    EXPECT_THAT(with_openmp_settings({users}, 3, 8), Not(Contains("OMP_NUM_THREADS=3")));
}

TEST(AllocatorTunables, AreAppendedWhereTheyAreMissing) {
  const std::string all =
      "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=8589934592:"
      "glibc.malloc.top_pad=268435456:glibc.malloc.hugetlb=1";
  EXPECT_EQ(allocator_tunables(""), all);
  EXPECT_EQ(allocator_tunables(all), all);
  EXPECT_EQ(allocator_tunables("glibc.rtld.nns=4"), "glibc.rtld.nns=4:" + all);
  EXPECT_EQ(allocator_tunables("glibc.malloc.hugetlb=0:glibc.malloc.top_pad=1"),
      "glibc.malloc.hugetlb=0:glibc.malloc.top_pad=1:glibc.malloc.mmap_threshold=4294967296:"
      "glibc.malloc.trim_threshold=8589934592");
}

}  // namespace
}  // namespace lockstep::launch
