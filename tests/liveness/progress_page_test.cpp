#include "lockstep/liveness/progress_page.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "lockstep/core/file_descriptor.h"
#include "lockstep/liveness/own_slot.h"

namespace lockstep {
namespace {

TEST(ProgressPage, ReportsHowFarTheRanksHaveCome) {
  SharedProgress shared(3);
  EXPECT_FALSE(shared.furthest_step()) << "nobody has attached";
  const auto mapped = map_slot(shared.path(), 1);  // as another process does
  ASSERT_TRUE(mapped);
  ProgressPage second(*mapped->slot), third(shared.slot(2));
  EXPECT_EQ(shared.furthest_step(), 0);
  EXPECT_FALSE(shared.first_step_ns());
  const std::int64_t before = monotonic_nanoseconds();
  second.report(400);
  const std::int64_t after = monotonic_nanoseconds();
  third.report(399);
  EXPECT_EQ(shared.furthest_step(), 400);
  second.report(7);
  EXPECT_EQ(shared.furthest_step(), 400) << "the furthest counts, not the last";
  third.report(401);
  EXPECT_EQ(shared.furthest_step(), 401);
  ASSERT_TRUE(shared.first_step_ns());
  EXPECT_GE(*shared.first_step_ns(), before);
  EXPECT_LE(*shared.first_step_ns(), after);
}

TEST(ProgressPage, IsSharedWithOtherProcesses) {
  const SharedProgress shared(1);
  setenv("LOCKSTEP_PROGRESS", shared.path().c_str(), 1);
  setenv("LOCAL_RANK", "0", 1);
  const pid_t child = ::fork();
  if (child == 0) {
    auto page = ProgressPage::from_environment();
    if (page) page->report(12);
    ::_exit(page ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  unsetenv("LOCKSTEP_PROGRESS");
  unsetenv("LOCAL_RANK");
  EXPECT_EQ(status, 0);
  EXPECT_EQ(shared.furthest_step(), 12);
}

TEST(ProgressPage, GivesTheTimeFromTheDeathToTheFirstStep) {
  SharedProgress shared(1);
  ProgressPage page(shared.slot(0));
  setenv("LOCKSTEP_DEATH_NS", std::to_string(monotonic_nanoseconds() - 2'000'000'000).c_str(), 1);
  EXPECT_FALSE(page.recovery_seconds()) << "no step yet";
  page.report(1);
  const auto seconds = page.recovery_seconds();
  page.report(2);
  EXPECT_EQ(page.recovery_seconds(), seconds) << "the first step counts";
  unsetenv("LOCKSTEP_DEATH_NS");
  ASSERT_TRUE(seconds);
  EXPECT_GE(*seconds, 2.0);
  EXPECT_FALSE(page.recovery_seconds()) << "a first attempt";
}

TEST(ProgressPage, IsAbsentWithoutALauncher) {
  unsetenv("LOCKSTEP_PROGRESS");
  EXPECT_FALSE(ProgressPage::from_environment());
  EXPECT_FALSE(map_slot("/no/such/page", 0));
}

std::string path_of(const FileDescriptor& file) {
  return "/proc/self/fd/" + std::to_string(file.get());
}

std::string bytes_of(const SharedProgress& page) {
  const FileDescriptor file(::open(page.path().c_str(), O_RDONLY | O_CLOEXEC));
  std::string bytes(4096, '\0');
  bytes.resize(static_cast<std::size_t>(::read(file.get(), bytes.data(), bytes.size())));
  return bytes;
}

FileDescriptor file_with(const std::string& bytes, int seals) {
  FileDescriptor file(::memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::write(file.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  EXPECT_EQ(::fcntl(file.get(), F_ADD_SEALS, seals), 0);
  return file;
}

TEST(ProgressPage, RefusesWhatIsNotAPage) {
  const SharedProgress shared(2);
  for (const int rank : {-1, 2, 1000}) EXPECT_FALSE(map_slot(shared.path(), rank));
  EXPECT_TRUE(map_slot(shared.path(), 1));
  EXPECT_FALSE(map_slot("/dev/zero", 0));

  constexpr int kSealed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  std::string bytes = bytes_of(shared);
  EXPECT_TRUE(map_slot(path_of(file_with(bytes, kSealed)), 1)) << "a true copy";
  EXPECT_FALSE(map_slot(path_of(file_with(bytes, F_SEAL_GROW)), 1)) << "may shrink";
  const std::string larger = bytes + std::string(64, '\0');
  EXPECT_FALSE(map_slot(path_of(file_with(larger, kSealed)), 1));
  EXPECT_FALSE(map_slot(path_of(file_with(bytes.substr(0, 8), kSealed)), 1));
  bytes[0] ^= 1;
  EXPECT_FALSE(map_slot(path_of(file_with(bytes, kSealed)), 1)) << "not a page of ours";

  const Pipe pipe = make_pipe();
  EXPECT_FALSE(map_slot(path_of(pipe.writer), 0)) << "nor does it wait for the reader";
}

TEST(StackAnswer, IsWrittenByTheThreadThatIsAsked) {
  static ProgressSlot slot;
  ASSERT_TRUE(answer_for_stack(slot, "/proc/self/fd/7"));
  const FileDescriptor file(::memfd_create("stack", MFD_CLOEXEC));
  slot.stack_file = file.get();
  pid_t asked = 0;
  std::jthread([&asked] {
    asked = ::gettid();
    ::raise(stack_signal());
  }).join();
  EXPECT_EQ(slot.answers, 1U);
  std::string text(1 << 16, '\0');
  text.resize(static_cast<std::size_t>(::pread(file.get(), text.data(), text.size(), 0)));
  EXPECT_EQ(text.find("thread " + std::to_string(asked) + "\n"), 0U) << text;
  EXPECT_THAT(text, ::testing::HasSubstr("libc.so.6("));
  slot.stack_file = -1;
  ::raise(stack_signal());
  EXPECT_EQ(slot.answers, 2U) << "nobody reads it any more, and nothing breaks";

  EXPECT_FALSE(answer_for_stack(slot, "/proc/self/fd/7")) << "a handler of the program stays";
  ::signal(stack_signal(), SIG_DFL);
}

}  // namespace
}  // namespace lockstep
