#include <gmock/gmock.h>
#include <signal.h>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

#include "lockstep/core/file_descriptor.h"
#include "lockstep/liveness/own_slot.h"

namespace lockstep {
namespace {

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
