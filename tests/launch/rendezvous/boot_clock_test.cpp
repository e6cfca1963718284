#include <fstream>
#include <gtest/gtest.h>
#include <optional>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/core/file_descriptor.h"
#include "lockstep/launch/rendezvous/service.h"

namespace lockstep::launch {
namespace {

/// Returns the time of a process whose machine seems to have been suspended for a thousand seconds
/// more: the kernel adds them to the clocks that go on meanwhile, and to no others. Nothing where
/// this user may have no time namespace.
std::optional<BootClock::time_point> after_a_suspension() {
  const Pipe answer = make_pipe();
  const pid_t parent = ::fork();
  if (parent == 0) {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWTIME) != 0) ::_exit(1);
    if (!(std::ofstream("/proc/self/timens_offsets") << "boottime 1000 0\n" << std::flush))
      ::_exit(1);
    const pid_t child = ::fork();  // the first one in that namespace
    if (child == 0) {
      const BootClock::rep now = BootClock::now().time_since_epoch().count();
      ::_exit(::write(answer.writer.get(), &now, sizeof(now)) == sizeof(now) ? 0 : 1);
    }
    int status = 1;
    ::waitpid(child, &status, 0);
    ::_exit(status == 0 ? 0 : 1);
  }
  int status = 1;
  ::waitpid(parent, &status, 0);
  BootClock::rep now = 0;
  if (status != 0 || ::read(answer.reader.get(), &now, sizeof(now)) != sizeof(now))
    return std::nullopt;
  return BootClock::time_point(BootClock::duration(now));
}

TEST(BootClock, GoesOnWhileTheMachineIsSuspended) {
  const std::chrono::seconds suspended(1000);
  const auto before = BootClock::now();
  const auto now = after_a_suspension();
  if (!now) GTEST_SKIP() << "a time namespace of one's own is not allowed here";
  EXPECT_GE(*now, before + suspended);
  EXPECT_LE(*now, BootClock::now() + suspended);
}

}  // namespace
}  // namespace lockstep::launch
