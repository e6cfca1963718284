// Masters that are not there, do not answer, or cannot serve.

#include <arpa/inet.h>
#include <cerrno>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/failing_call.h"
#include "tests/support/message_of.h"
#include "tests/support/other_network.h"

#include "lockstep/comm/store.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file_descriptor.h"

namespace {

int closed_in_vain = 0;

}  // namespace

// Stands in for libc's and counts descriptors that were closed before.
extern "C" int close(int descriptor) {
  const auto result = static_cast<int>(::syscall(SYS_close, descriptor));
  if (result != 0 && errno == EBADF) ++closed_in_vain;
  return result;
}

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

/// Returns why there is no connection; fails if anything else is printed.
std::string why_not(const std::string& host, int port) {
  ::testing::internal::CaptureStderr();
  const std::string text = testing::message_of<TimeoutError>(
      [&] { tcp_store({.host = host, .port = port, .timeout = milliseconds(300)}); });
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_THAT(text, Not(HasSubstr("\n")));
  return text;
}

// Where nobody answers for names, that is what is said.
TEST(TcpStore, AHostWithoutAnAddressIsNamed) {
  EXPECT_THAT(why_not("no-such-host.invalid", 29500),
      ::testing::MatchesRegex("store: no connection to no-such-host.invalid:29500 within 300 ms: "
                              "(no address for no-such-host.invalid: .*|the name .*)"));
}

TEST(TcpStore, APortWhereNobodyListensIsNamed) {
  EXPECT_EQ(why_not("127.0.0.1", 1),
      "store: no connection to 127.0.0.1:1 within 300 ms: rank 0 does not listen there: Connection "
      "refused");
}

TEST(TcpStore, ALoopbackThatIsDownIsSaidAtOnce) {
  testing::other_network().loopback_is_down = true;
  for (const bool serves : {true, false})
    EXPECT_THAT(testing::message_of<InvalidArgument>(
                    [&] { tcp_store({.host = "127.0.0.1", .port = 1, .serve = serves}); }),
        HasSubstr("the loopback interface of this host is down"));
  testing::other_network() = {};
}

/// Takes connections, as the kernel does, and never answers.
class SilentMaster {
 public:
  SilentMaster() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(place);
    auto* address = reinterpret_cast<sockaddr*>(&place);
    EXPECT_EQ(::bind(socket_.get(), address, size), 0);
    EXPECT_EQ(::listen(socket_.get(), 10), 0);
    EXPECT_EQ(::getsockname(socket_.get(), address, &size), 0);
    port_ = ntohs(place.sin_port);
  }

  int port() const { return port_; }

 private:
  FileDescriptor socket_;
  int port_ = 0;
};

TEST(TcpStore, AMasterThatDoesNotAnswerIsNotWaitedForWithoutEnd) {
  const SilentMaster master;
  EXPECT_THAT(why_not("127.0.0.1", master.port()),
      HasSubstr("within 300 ms: what listens there does not answer as the store of rank 0"));
}

// In a process of its own, as it may connect to nobody from then on.
TEST(TcpStore, ClosesItsSocketOnceWhenItCannotReachItself) {
  const pid_t child = ::fork();
  if (child == 0) {
    testing::make_call_fail(SYS_connect, EACCES);
    closed_in_vain = 0;
    try {
      tcp_store({.host = "127.0.0.1", .serve = true, .timeout = milliseconds(300)});
    } catch (const CommError&) {
      ::_exit(closed_in_vain == 0 ? 0 : 1);
    }
    ::_exit(2);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "1: closed twice, 2: connected";
}

}  // namespace
}  // namespace lockstep
