#include "lockstep/launch/hang/rank_stack.h"

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <gmock/gmock.h>
#include <signal.h>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/temporary_folder.h"

#include "lockstep/liveness/own_slot.h"
#include "lockstep/liveness/progress_page.h"

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ProcessState, IsReadFromTheTextsOfProc) {
  EXPECT_EQ(state_in("12 (a b) T) T 1 2"), 'T') << "a name may hold anything";
  EXPECT_EQ(state_in("12 (x) R 1"), 'R');
  EXPECT_EQ(state_in(""), '?');
  EXPECT_EQ(state_in("12 (x) "), '?');
  constexpr const char* kStatus = "Name:\tx\nTracerPid:\t17\nSigCgt:\t0000000000000001\n";
  EXPECT_EQ(status_value(kStatus, "TracerPid"), "17");
  EXPECT_EQ(status_value(kStatus, "SigCgt"), "0000000000000001");
  EXPECT_EQ(status_value(kStatus, "Tracer"), "");
  EXPECT_TRUE(holds_signal("0400000000000001", 1));
  EXPECT_TRUE(holds_signal("0400000000000001", 59));
  EXPECT_FALSE(holds_signal("0400000000000001", 58));
  EXPECT_FALSE(holds_signal("", 1));
}

TEST(RankStack, FramesAreMadeReadable) {
  SymbolTables tables;
  EXPECT_EQ(readable_frame("/lib/libx.so(_ZNKSt6vectorIiE4sizeEv+0x12)[0x7f00]", tables),
      "std::vector<int>::size() const in libx.so");
  EXPECT_EQ(readable_frame("/lib/libc.so.6(poll+0x4f)[0x7f00]", tables), "poll in libc.so.6");
  EXPECT_EQ(readable_frame("./a/program(+0x1234)[0x55]", tables), "program+0x1234");
  EXPECT_EQ(readable_frame("[0x55]", tables), "[0x55]");
  const auto stacks = parse_stacks("late line\nthread 12\n/a(f+0x1)[0x2]\nthread 13\n", tables);
  ASSERT_EQ(stacks.size(), 2U);
  EXPECT_EQ(stacks[0].thread, 12);
  EXPECT_THAT(stacks[0].frames, ElementsAre("f in a"));
  EXPECT_TRUE(stacks[1].frames.empty());
}

TEST(RankStack, IsThatOfThePythonThreadThatWasAsked) {
  const std::string text =
      "Thread 0x1 (most recent call first):\n  File \"a.py\", line 1 in wait\n\n"
      "Current thread 0x2 (most recent call first):\n  File \"b.py\", line 2 in f\n"
      "  File \"b.py\", line 9 in <module>\n\n"
      "Thread 0x3 (most recent call first):\n  File \"c.py\", line 3 in wait\n";
  const auto stacks = parse_python_stack(text, 12);
  ASSERT_EQ(stacks.size(), 1U);
  EXPECT_EQ(stacks[0].thread, 12);
  EXPECT_THAT(stacks[0].frames,
      ElementsAre("File \"b.py\", line 2 in f", "File \"b.py\", line 9 in <module>"));
  EXPECT_TRUE(parse_python_stack("", 12).empty());
}

[[gnu::noinline]] void known_to_nobody() { std::abort(); }

// An address within it, as this program's file has it.
std::uintptr_t address_in_file() {
  Dl_info place{};
  const auto address = reinterpret_cast<std::uintptr_t>(&known_to_nobody);
  EXPECT_NE(::dladdr(reinterpret_cast<void*>(address), &place), 0);
  return address - reinterpret_cast<std::uintptr_t>(place.dli_fbase) + 1;
}

TEST(RankStack, FunctionsThatAreNotExportedHaveTheirNames) {
  const std::uintptr_t address = address_in_file();
  const SymbolTable own("/proc/self/exe");
  EXPECT_THAT(own.at(address).value_or("none"), HasSubstr("known_to_nobody"));
  EXPECT_FALSE(own.at(1));
  EXPECT_FALSE(SymbolTable("/proc/self/status").at(address));
  EXPECT_FALSE(SymbolTable("/no/such/file").at(address));
}

TEST(RankStack, TheSymbolsOfAFileAreReadOnce) {
  const lockstep::testing::TemporaryFolder folder;
  const std::string copy = folder.file("program");
  std::filesystem::copy_file("/proc/self/exe", copy);
  std::ostringstream line;
  line << copy << "(+0x" << std::hex << address_in_file() << ")[0x7f00]";
  SymbolTables tables;
  const std::string first = readable_frame(line.str(), tables);
  EXPECT_THAT(first, HasSubstr("known_to_nobody"));
  std::filesystem::remove(copy);
  EXPECT_EQ(readable_frame(line.str(), tables), first) << "of another rank of the same program";
  EXPECT_EQ(tables.size(), 1U);
}

/// A child process that waits, and answers for its stack if it is to.
class Waiting {
 public:
  Waiting(SharedProgress& shared, bool answers) {
    const Pipe ready = make_pipe();
    const std::string page = shared.path();
    pid_ = ::fork();
    if (pid_ == 0) {
      ProgressSlot& slot = shared.slot(0);
      if (answers && answer_for_stack(slot, page)) slot.stack_signal = stack_signal();
      static_cast<void>(::write(ready.writer.get(), "x", 1));
      while (true) ::pause();
    }
    char letter = 0;
    EXPECT_EQ(::read(ready.reader.get(), &letter, 1), 1);
    while (ProcessState(pid_).letter() != 'S') ::usleep(1000);  // it may still be in its write()
  }
  ~Waiting() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

std::chrono::steady_clock::time_point in_a_minute() {
  return std::chrono::steady_clock::now() + std::chrono::minutes(1);
}

TEST(RankStack, IsThatOfAnotherProcess) {
  SharedProgress shared(1);
  const Waiting child(shared, true);
  SymbolTables tables;
  const auto stacks = ask_for_stacks(shared.slot(0), child.pid(), in_a_minute(), tables);
  ASSERT_EQ(stacks.size(), 1U);
  EXPECT_EQ(stacks[0].thread, child.pid());
  EXPECT_THAT(stacks[0].frames, ::testing::Contains(HasSubstr("pause in libc")));
}

TEST(RankStack, IsALineOfProcWhereTheProcessCannotAnswer) {
  SharedProgress shared(1);
  const Waiting mute(shared, false);
  shared.slot(0).stack_signal = stack_signal();  // as one that has executed another program
  SymbolTables tables;
  const auto stacks = ask_for_stacks(shared.slot(0), mute.pid(), in_a_minute(), tables);
  ASSERT_EQ(stacks.size(), 1U);
  EXPECT_THAT(stacks[0].frames, ElementsAre(HasSubstr("state S")));
  EXPECT_EQ(::kill(mute.pid(), 0), 0) << "it was not asked by a signal that would end it";

  const Waiting stopped(shared, true);
  ::kill(stopped.pid(), SIGSTOP);
  ::waitpid(stopped.pid(), nullptr, WUNTRACED);
  const auto line = ask_for_stacks(shared.slot(0), stopped.pid(), in_a_minute(), tables);
  ASSERT_EQ(line.size(), 1U);
  EXPECT_THAT(line[0].frames, ElementsAre(HasSubstr("state T")));
}

}  // namespace
}  // namespace lockstep::launch
