#include "lockstep/core/cpu_share.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <sched.h>
#include <span>

#include "tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using Cpus = std::vector<int>;

TEST(CpuShare, CutsContiguousParts) {
  const Cpus cpus{0, 1, 4, 5, 8};
  EXPECT_EQ(cpu_share(cpus, 0, 2), (Cpus{0, 1, 4}));
  EXPECT_EQ(cpu_share(cpus, 1, 2), (Cpus{5, 8}));
  EXPECT_EQ(cpu_share(cpus, 0, 1), cpus);
  EXPECT_EQ(cpu_share(cpus, 4, 5), (Cpus{8}));
}

TEST(CpuShare, PinsNobodyWhenThereAreTooFewCores) {
  EXPECT_TRUE(cpu_share({0, 1}, 0, 3).empty());
  EXPECT_TRUE(cpu_share({}, 0, 1).empty());
}

TEST(CpuShare, KnowsWhatThisProcessMayUse) {
  const Cpus cpus = available_cpus();
  cpu_set_t mask;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(mask), &mask), 0);
  EXPECT_EQ(static_cast<int>(cpus.size()), CPU_COUNT(&mask));
  EXPECT_GE(usable_cpu_count(), 1);
  EXPECT_LE(usable_cpu_count(), static_cast<int>(cpus.size()));
}

TEST(Cgroup, FindsAKey) {
  const std::string events = "low 0\nhigh 0\nmax 17\noom 3\noom_kill 2\noom_group_kill 0\n";
  EXPECT_EQ(keyed_number(events, "oom_kill"), 2);
  EXPECT_EQ(keyed_number(events, "oom"), 3);
  EXPECT_EQ(keyed_number(events, "none"), std::nullopt);
  EXPECT_EQ(keyed_number("", "oom"), std::nullopt);
}

/// A machine's files of cgroups.
class Cgroups {
 public:
  explicit Cgroups(const std::string& own) { write("own", own); }

  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((folder_.path() / file).parent_path());
    folder_.write(file, std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()));
  }
  std::optional<double> quota() const {
    return cgroup_cpu_quota({.mount = folder_.file("mount"), .own = folder_.file("own")});
  }

 private:
  testing::TemporaryFolder folder_;
};

TEST(CgroupQuota, IsTheLeastOfThoseAround) {
  const Cgroups two("0::/pod/container/session\n");
  EXPECT_EQ(two.quota(), std::nullopt);
  two.write("mount/pod/container/session/cpu.max", "max 100000\n");
  EXPECT_EQ(two.quota(), std::nullopt);
  two.write("mount/pod/cpu.max", "150000 100000\n");
  EXPECT_EQ(two.quota(), 1.5);
  two.write("mount/pod/container/cpu.max", "400000 100000\n");
  EXPECT_EQ(two.quota(), 1.5);
  two.write("mount/pod/container/session/cpu.max", "50000 100000\n");
  EXPECT_EQ(two.quota(), 0.5);
}

TEST(CgroupQuota, OfVersionOneIsReadToo) {
  const Cgroups one("4:memory:/elsewhere\n2:cpu,cpuacct:/docker/1\n");
  one.write("mount/cpu/docker/1/cpu.cfs_quota_us", "-1\n");
  one.write("mount/cpu/docker/1/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(one.quota(), std::nullopt);
  one.write("mount/cpu/docker/1/cpu.cfs_quota_us", "250000\n");
  EXPECT_EQ(one.quota(), 2.5);
}

// As a container sees it: the own folder is the root of the mount.
TEST(CgroupQuota, OfTheMountedFolderIsReadWhereTheOwnIsNotThere) {
  const Cgroups inside("0::/../../outer\n");
  inside.write("mount/cpu.max", "200000 100000\n");
  EXPECT_EQ(inside.quota(), 2.0);
}

TEST(CpuShare, AQuotaLeavesThreadsInProportion) {
  const int available = static_cast<int>(available_cpus().size());
  EXPECT_EQ(threads_on(available), usable_cpu_count());
  EXPECT_EQ(threads_on(0), 1);
}

}  // namespace
}  // namespace lockstep
