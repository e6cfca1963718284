#include "lockstep/core/process.h"

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iostream>
#include <sched.h>
#include <span>
#include <sstream>
#include <stdexcept>
#include <stdlib.h>
#include <string>
#include <sys/syscall.h>
#include <system_error>
#include <vector>

#include "tests/support/failing_call.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/cpu_share.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/core/file_descriptor.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::message_of;
using ::testing::StartsWith;
using Cpus = std::vector<int>;

constexpr std::int64_t kMebibyte = 1 << 20;

TEST(TemporaryFolder, ThatIsNoneIsNamedWithItsVariable) {
  const std::string before = temporary_folder();
  ::setenv("TMPDIR", "/no/such/folder", 1);
  EXPECT_THAT(message_of<std::system_error>([] { temporary_folder(); }),
      AllOf(StartsWith("TMPDIR must name"), HasSubstr("/no/such/folder")));
  ::setenv("TMPDIR", before.c_str(), 1);
}

// In a process of its own, which can read no link from then on.
TEST(OwnProgramDeathTest, WithoutProcIsToldWhatIsMissing) {
  const auto ask = [] {
#ifdef SYS_readlink
    testing::make_call_fail(SYS_readlink, ENOENT);
#endif
    testing::make_call_fail(SYS_readlinkat, ENOENT);
    std::cerr << message_of<std::system_error>([] { own_program("run"); }) << std::endl;
    std::_Exit(0);
  };
  EXPECT_EXIT(ask(), ::testing::ExitedWithCode(0),
      "^run: cannot tell where this program lies; is /proc mounted\\?: No such file or directory");
}

TEST(PeakMemory, GrowsWithWhatIsTouchedAndStays) {
  const auto before = peak_memory_bytes();
  ASSERT_TRUE(before.has_value());
  EXPECT_GT(*before, kMebibyte);
  {
    std::vector<char> pages(static_cast<std::size_t>(256 * kMebibyte));
    for (std::size_t i = 0; i < pages.size(); i += 4096) pages[i] = 1;
    volatile char seen = pages.back();
    static_cast<void>(seen);
  }
  const auto after = peak_memory_bytes();
  ASSERT_TRUE(after.has_value());
  EXPECT_GE(*after, *before + 200 * kMebibyte);
  EXPECT_LE(*after, *before + 400 * kMebibyte);
}

TEST(Environment, AnEmptyVariableIsAMistakeThatIsNamed) {
  unsetenv("LOCKSTEP_TEST_VALUE");
  EXPECT_FALSE(environment("LOCKSTEP_TEST_VALUE"));
  EXPECT_FALSE(environment_number("LOCKSTEP_TEST_VALUE"));
  setenv("LOCKSTEP_TEST_VALUE", "", 1);
  const std::string message =
      "environment: LOCKSTEP_TEST_VALUE is set, but empty; give it a value, or unset it";
  EXPECT_EQ(message_of<InvalidArgument>([] { environment("LOCKSTEP_TEST_VALUE"); }), message);
  EXPECT_EQ(
      message_of<InvalidArgument>([] { environment_number("LOCKSTEP_TEST_VALUE"); }), message);
  EXPECT_EQ(message_of<InvalidArgument>([] { environment_count("LOCKSTEP_TEST_VALUE"); }), message);
}

TEST(Environment, AVariableOfTheSystemMayBeEmpty) {
  unsetenv("LOCKSTEP_TEST_VALUE");
  EXPECT_EQ(system_variable("LOCKSTEP_TEST_VALUE"), "");
  setenv("LOCKSTEP_TEST_VALUE", "", 1);
  EXPECT_EQ(system_variable("LOCKSTEP_TEST_VALUE"), "");
  setenv("LOCKSTEP_TEST_VALUE", "/bin", 1);
  EXPECT_EQ(system_variable("LOCKSTEP_TEST_VALUE"), "/bin");
}

TEST(Environment, ACountIsNeverCutToFit) {
  for (const char* bad : {"-1", "1000001", "4294967296", "1099511627776", "nan", "1e3"}) {
    setenv("LOCKSTEP_TEST_VALUE", bad, 1);
    EXPECT_EQ(message_of<InvalidArgument>([] { environment_count("LOCKSTEP_TEST_VALUE"); }),
        concat("environment: LOCKSTEP_TEST_VALUE must be a whole number from 0 to 1000000: ", '"',
            bad, '"'));
  }
  setenv("LOCKSTEP_TEST_VALUE", "0", 1);
  EXPECT_EQ(environment_count("LOCKSTEP_TEST_VALUE"), 0);
  EXPECT_THROW(environment_count("LOCKSTEP_TEST_VALUE", 1), InvalidArgument);
}

TEST(Environment, NumberRefusesWhatIsNotOne) {
  setenv("LOCKSTEP_TEST_VALUE", "12", 1);
  EXPECT_EQ(environment_number("LOCKSTEP_TEST_VALUE"), 12);
  for (const char* bad : {"12a", "x", "1.5", "99999999999999999999"}) {
    setenv("LOCKSTEP_TEST_VALUE", bad, 1);
    EXPECT_THROW(environment_number("LOCKSTEP_TEST_VALUE"), InvalidArgument) << bad;
  }
}

TEST(Error, CheckThrowsTheJoinedMessage) {
  const auto call = [] { check(false, "broadcast: root must be a rank: ", 7, " of ", 2); };
  EXPECT_EQ(testing::message_of<InvalidArgument>(call), "broadcast: root must be a rank: 7 of 2");
  EXPECT_NO_THROW(check(true, "unused"));
}

TEST(Error, OfTheSystemSaysWhatCannotBeDone) {
  const auto message = [](const char* action, const char* object) {
    errno = ENOENT;
    return testing::message_of<std::system_error>([&] { throw_errno(action, object); });
  };
  EXPECT_EQ(message("make the folder", "x"), "cannot make the folder x: No such file or directory");
  EXPECT_EQ(message("hosts: fork", ""), "hosts: cannot fork: No such file or directory");
  EXPECT_EQ(
      message("fetch: cannot write", "x"), "fetch: cannot write x: No such file or directory");
}

TEST(Error, EachKindHasItsExitCode) {
  EXPECT_EQ(exit_code_of(InvalidArgument("")), ExitCode::kUsage);
  EXPECT_EQ(exit_code_of(DataError("")), ExitCode::kData);
  EXPECT_EQ(exit_code_of(TimeoutError("")), ExitCode::kPeersLost);
  EXPECT_EQ(exit_code_of(std::bad_alloc()), ExitCode::kEnvironment);
  EXPECT_EQ(exit_code_of(DivergedError("")), ExitCode::kDiverged);
  EXPECT_EQ(
      exit_code_of(std::system_error(ENOSPC, std::generic_category())), ExitCode::kEnvironment);
  EXPECT_EQ(exit_code_of(std::runtime_error("")), ExitCode::kUnclassified);
}

constexpr const char* kFramed =
    "no room\nException raised from make at a.cpp:7 (most recent call first):\nframe #0: a\n"
    "frame #1: b\n";

TEST(FrameLog, CutsATextAtItsFrames) {
  const FramedText cut = cut_at_frames(std::string("a: ") + kFramed + "\nmore");
  EXPECT_EQ(cut.before, "a: no room");
  EXPECT_EQ(cut.frames,
      "Exception raised from make at a.cpp:7 (most recent call first):\nframe #0: a\nframe #1: b");
  EXPECT_EQ(cut.after, "\nmore");
  EXPECT_EQ(cut_at_frames("two\nlines\n").before, "two\nlines\n");
}

/// Takes the place of std::cerr's buffer.
class Terminal {
 public:
  Terminal() : before_(std::cerr.rdbuf(&text_)) {}
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal() { std::cerr.rdbuf(before_); }
  std::string text() const { return text_.str(); }

 private:
  std::stringbuf text_;
  std::streambuf* before_;
};

// One test: a process has one log of frames.
TEST(FrameLog, KeepsFramesOffTheTerminalAndNamesItsFile) {
  const testing::TemporaryFolder folder;
  keep_frames_in(folder.str());
  const Terminal terminal;
  {
    const FrameFilter filter;
    std::cerr << "plain" << '\n' << "b: " << kFramed << std::endl;
  }
  const std::string log = folder.file("rank-0-frames.log");
  const std::string shown = "plain\nb: no room (C++ frames: " + log + ")\n";
  EXPECT_EQ(terminal.text(), shown);
  EXPECT_THAT(testing::contents(log), HasSubstr("no room\nException raised from make at"));
  EXPECT_THAT(testing::contents(log), HasSubstr("frame #1: b\n"));

  const auto fail = [](int, char**) -> int { throw std::runtime_error(kFramed); };
  EXPECT_EQ(run_program("prog", fail, 0, nullptr), 1);
  EXPECT_EQ(terminal.text(), shown + "prog: no room (C++ frames: " + log + ")\n");
}

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
