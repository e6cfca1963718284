#include <cstdlib>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <signal.h>
#include <stdlib.h>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/file_descriptor.h"
#include "lockstep/liveness/group_record.h"
#include "lockstep/liveness/progress_page.h"
#include "lockstep/liveness/rank_progress.h"
#include "lockstep/liveness/spare.h"
#include "lockstep/liveness/stack_answer.h"

namespace lockstep {
namespace {

using Op = Operation;

TEST(GroupRecord, SaysWhatARankHasBegunAndForWhatItWaits) {
  ProgressSlot slot;
  GroupRecord record(&slot, kWorldGroup, 1, 3);
  EXPECT_EQ(read_progress(slot).waiting(), nullptr);
  record.begin(Op::kAllReduce, 16);
  const CallTicket second = record.begin(Op::kBroadcast, 1'000'000'000'000);
  record.begin(Op::kBarrier, 0);
  {
    const CallWait wait(second);
    const RankProgress progress = read_progress(slot);
    const GroupProgress* const group = progress.waiting();
    ASSERT_NE(group, nullptr);
    EXPECT_EQ(group->id, kWorldGroup);
    EXPECT_EQ(group->rank, 1);
    EXPECT_EQ(group->size, 3);
    EXPECT_EQ(group->begun, 3U);
    EXPECT_EQ(group->last, (GroupCall{Op::kBarrier, 0}));
    EXPECT_EQ(group->wait, (GroupProgress::Wait{{Op::kBroadcast, 1'000'000'000'000}, 2}));
  }
  EXPECT_EQ(read_progress(slot).waiting(), nullptr);
}

TEST(GroupRecord, EachBeginningAndEndIsASignOfLife) {
  ProgressSlot slot;
  std::vector<std::uint64_t> seen{read_progress(slot).activity};
  const auto changes = [&] {
    seen.push_back(read_progress(slot).activity);
    return seen.back() != seen[seen.size() - 2];
  };
  auto record = std::make_unique<GroupRecord>(&slot, kWorldGroup, 0, 2);
  const CallTicket ticket = record->begin(Op::kAllReduce, 4);
  EXPECT_TRUE(changes());
  {
    const CallWait wait(ticket);
    EXPECT_FALSE(changes()) << "to wait is none";
  }
  EXPECT_TRUE(changes());
  record->begin_alone(Op::kSend, 4);
  EXPECT_TRUE(changes());
  record.reset();
  EXPECT_TRUE(changes());
  slot.signs.fetch_add(1);
  EXPECT_TRUE(changes());
  slot.step.store(3);
  EXPECT_TRUE(changes());
}

TEST(GroupRecord, AMessageIsNoneOfTheCollectives) {
  ProgressSlot slot;
  GroupRecord record(&slot, kWorldGroup, 0, 2);
  const CallWait wait(record.begin_alone(Op::kRecv, 8));
  const RankProgress progress = read_progress(slot);
  EXPECT_EQ(progress.waiting()->begun, 0U);
  EXPECT_EQ(progress.waiting()->wait, (GroupProgress::Wait{{Op::kRecv, 8}, 0}));
}

TEST(GroupRecord, PartsHaveOneNumberOnAllOfTheirRanksAndNoOther) {
  std::vector<ProgressSlot> slots(4);
  std::vector<std::uint64_t> ids;
  for (int rank = 0; rank < 4; ++rank) {
    ProgressSlot& slot = slots[static_cast<std::size_t>(rank)];
    const GroupRecord world(&slot, kWorldGroup, rank, 4);
    const GroupRecord pair = world.part(&slot, 1, rank / 2 * 2, rank % 2, 2);
    const GroupRecord again = world.part(&slot, 2, rank / 2 * 2, rank % 2, 2);
    const RankProgress progress = read_progress(slot);
    ASSERT_EQ(progress.groups.size(), 3U);
    for (const GroupProgress& group : progress.groups) ids.push_back(group.id);
  }
  EXPECT_TRUE(std::equal(ids.begin(), ids.begin() + 3, ids.begin() + 3)) << "ranks 0 and 1";
  EXPECT_TRUE(std::equal(ids.begin() + 6, ids.begin() + 9, ids.begin() + 9)) << "ranks 2 and 3";
  EXPECT_EQ(ids[0], ids[6]);
  EXPECT_NE(ids[1], ids[7]) << "two groups of one split";
  EXPECT_NE(ids[1], ids[2]) << "two splits";
}

TEST(GroupRecord, ManyShareTheLastSlot) {
  ProgressSlot slot;
  std::vector<GroupRecord> records;
  for (std::uint64_t id = 0; id < ProgressSlot::kGroups + 4; ++id)
    records.emplace_back(&slot, 10 + id, 0, 2);
  EXPECT_EQ(read_progress(slot).groups.size(), ProgressSlot::kGroups);
  EXPECT_EQ(read_progress(slot).groups.back().id, kOtherGroups);
  const CallWait wait(records.back().begin(Op::kBarrier, 0));
  EXPECT_NE(read_progress(slot).waiting(), nullptr);
  records.clear();
  EXPECT_EQ(read_progress(slot).groups.size(), 1U) << "the others are free again";
  const GroupRecord next(&slot, kWorldGroup, 0, 2);
  EXPECT_EQ(read_progress(slot).groups.front().begun, 0U);
}

TEST(GroupRecord, WithoutALauncherItIsEmpty) {
  GroupRecord none(nullptr, kWorldGroup, 0, 2);
  EXPECT_TRUE(none.is_empty());
  const CallWait wait(none.begin(Op::kAllReduce, 4));
}

TEST(ProgressPage, ReportsHowFarTheRanksHaveCome) {
  const SharedProgress shared(3);
  EXPECT_FALSE(shared.furthest_step()) << "nobody has attached";
  auto second = ProgressPage::attach(shared.path(), 1);
  auto third = ProgressPage::attach(shared.path(), 2);
  ASSERT_TRUE(second && third);
  EXPECT_EQ(shared.furthest_step(), 0);
  EXPECT_FALSE(shared.first_step_ns());
  const std::int64_t before = monotonic_nanoseconds();
  second->report(400);
  const std::int64_t after = monotonic_nanoseconds();
  third->report(399);
  EXPECT_EQ(shared.furthest_step(), 400);
  second->report(7);
  EXPECT_EQ(shared.furthest_step(), 400) << "the furthest counts, not the last";
  third->report(401);
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
  const SharedProgress shared(1);
  auto page = ProgressPage::attach(shared.path(), 0);
  ASSERT_TRUE(page);
  setenv("LOCKSTEP_DEATH_NS", std::to_string(monotonic_nanoseconds() - 2'000'000'000).c_str(), 1);
  EXPECT_FALSE(page->recovery_seconds()) << "no step yet";
  page->report(1);
  const auto seconds = page->recovery_seconds();
  page->report(2);
  EXPECT_EQ(page->recovery_seconds(), seconds) << "the first step counts";
  unsetenv("LOCKSTEP_DEATH_NS");
  ASSERT_TRUE(seconds);
  EXPECT_GE(*seconds, 2.0);
  EXPECT_FALSE(page->recovery_seconds()) << "a first attempt";
}

TEST(ProgressPage, IsAbsentWithoutALauncher) {
  unsetenv("LOCKSTEP_PROGRESS");
  EXPECT_FALSE(ProgressPage::from_environment());
  EXPECT_FALSE(ProgressPage::attach("/no/such/page", 0));
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
  for (const int rank : {-1, 2, 1000}) EXPECT_FALSE(ProgressPage::attach(shared.path(), rank));
  EXPECT_TRUE(ProgressPage::attach(shared.path(), 1));
  EXPECT_FALSE(ProgressPage::attach("/dev/zero", 0));

  constexpr int kSealed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  std::string bytes = bytes_of(shared);
  EXPECT_TRUE(ProgressPage::attach(path_of(file_with(bytes, kSealed)), 1)) << "a true copy";
  EXPECT_FALSE(ProgressPage::attach(path_of(file_with(bytes, F_SEAL_GROW)), 1)) << "may shrink";
  const std::string larger = bytes + std::string(64, '\0');
  EXPECT_FALSE(ProgressPage::attach(path_of(file_with(larger, kSealed)), 1));
  EXPECT_FALSE(ProgressPage::attach(path_of(file_with(bytes.substr(0, 8), kSealed)), 1));
  bytes[0] ^= 1;
  EXPECT_FALSE(ProgressPage::attach(path_of(file_with(bytes, kSealed)), 1)) << "not a page of ours";

  const Pipe pipe = make_pipe();
  EXPECT_FALSE(ProgressPage::attach(path_of(pipe.writer), 0)) << "nor does it wait for the reader";
}

// Becomes a spare to which a launcher writes this.
void wait_for(const std::string& text) {
  Pipe pipe = make_pipe();
  ::setenv(kSpareVariable, std::to_string(pipe.reader.release()).c_str(), 1);
  if (::write(pipe.writer.get(), text.data(), text.size()) != std::ssize(text)) std::_Exit(1);
  pipe.writer.reset();
  wait_if_spare();
}

TEST(Spare, TakesTheVariablesOfItsRank) {
  ::setenv("SPARE_TEST_OLD", "old", 1);
  wait_for(variables_text({{"SPARE_TEST_NEW", "a=b c"}, {"SPARE_TEST_OLD", ""}}));
  EXPECT_STREQ(std::getenv("SPARE_TEST_NEW"), "a=b c");
  EXPECT_EQ(std::getenv("SPARE_TEST_OLD"), nullptr);
  EXPECT_EQ(std::getenv(kSpareVariable), nullptr) << "its own children are none";
  ::unsetenv("SPARE_TEST_NEW");
}

TEST(Spare, WhichIsNotNeededEnds) { EXPECT_EXIT(wait_for(""), ::testing::ExitedWithCode(0), ""); }

TEST(Spare, IsNoOtherProcess) {
  ::unsetenv(kSpareVariable);
  wait_if_spare();
}

TEST(Spare, SaysWhatIsWrong) {
  ::setenv(kSpareVariable, "999999", 1);
  EXPECT_THROW(wait_if_spare(), std::system_error);
  ::setenv(kSpareVariable, "seven", 1);
  EXPECT_THROW(wait_if_spare(), InvalidArgument);
  ::unsetenv(kSpareVariable);
}

TEST(Variables, AreReadAsTheyWereWritten) {
  const Variables variables{{"A", ""}, {"B", "x\ny"}};
  EXPECT_EQ(parse_variables(variables_text(variables)), variables);
  EXPECT_TRUE(parse_variables("").empty());
  for (const std::string text : {"A=1", "A", "=1"}) {
    EXPECT_THROW(parse_variables(text), DataError) << text;
    EXPECT_EQ(parse_variables("A=1" + std::string(1, '\0')).size(), 1U);
  }
  EXPECT_THROW(parse_variables(std::string("A\0", 2)), DataError);
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
