// Masters that are not there, do not answer, or cannot serve; and the store that launchers of
// several nodes serve: what c10d asks of a store, and a world through it.

#include <arpa/inet.h>
#include <cerrno>
#include <cstdlib>
#include <functional>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <latch>
#include <map>
#include <optional>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "tests/support/failing_call.h"
#include "tests/support/message_of.h"
#include "tests/support/other_network.h"
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/version.h>

#include "lockstep/comm/backend.h"
#include "lockstep/comm/gloo_backend.h"
#include "lockstep/comm/rendezvous.h"
#include "lockstep/comm/store.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file_descriptor.h"
#include "lockstep/core/text.h"
#include "lockstep/net/endpoint.h"
#include "lockstep/net/server.h"
#include "lockstep/net/store.h"

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

/// The ranks' part of what a launcher serves.
class ServedValues final : public net::ServerHandler {
 public:
  explicit ServedValues(const net::Key& key) : key_(key) {}

  Admission admit(const net::Hello&) override { return {.key = key_}; }
  void on_open(net::PeerId, const net::Hello&, net::Postbox&) override {}
  void on_message(net::PeerId peer, const std::string& message, net::Postbox& out) override {
    reply(values_.take(peer, net::store_request_of(message), Clock::now()), out);
  }
  void on_close(net::PeerId peer, net::Postbox&) override { values_.forget(peer); }
  std::optional<Clock::time_point> on_time(Clock::time_point now, net::Postbox& out) override {
    reply(values_.expire(now), out);
    return values_.next_expiry();
  }

 private:
  static void reply(const net::KeyValues::Answers& answers, net::Postbox& out) {
    for (const auto& each : answers) out.send(each.to, bytes_of(each.reply));
  }

  net::Key key_;
  net::KeyValues values_;
};

class LaunchersStore : public ::testing::Test {
 protected:
  LaunchersStore() : values_(key_) {
    auto listener = net::listen_at({.host = "127.0.0.1", .port = 0});
    options_ = {
        .place = net::Endpoint{.host = "127.0.0.1", .port = net::port_of_socket(*listener)}.text(),
        .key = hex_of(key_),
        .generation = 1,
        .run = "job",
        .timeout = std::chrono::seconds(20)};
    server_.emplace(*std::move(listener), values_);
  }

  static std::vector<std::uint8_t> in_bytes(const std::string& text) {
    return {text.begin(), text.end()};
  }

  net::Key key_ = net::random_key();
  ServedValues values_;
  LauncherStoreOptions options_;
  std::optional<net::Server> server_;
};

TEST_F(LaunchersStore, DoesWhatC10dAsks) {
  const Store store = launcher_store(options_), other = store->clone();
  store->set("key", "value");
  EXPECT_EQ(other->get_to_str("key"), "value");
  EXPECT_EQ(store->add("sum", 2), 2);
  EXPECT_EQ(other->add("sum", 3), 5);
  EXPECT_EQ(store->get_to_str("sum"), "5");
  EXPECT_EQ(store->compareSet("key", "wrong", "value1"), "value");
  EXPECT_EQ(store->compareSet("key", "value", "value1"), "value1");
  EXPECT_EQ(store->compareSet("missing", "guess", "value"), "guess");
  EXPECT_FALSE(store->check({"key", "missing"}));
  EXPECT_TRUE(store->check({"key", "sum"}));
  EXPECT_EQ(store->getNumKeys(), 2);
  EXPECT_TRUE(store->deleteKey("sum"));
  EXPECT_FALSE(store->deleteKey("sum"));
  EXPECT_TRUE(store->hasExtendedApi());
  store->append("key", in_bytes("+"));
  store->multiSet({"a", "b"}, {in_bytes("1"), in_bytes("2")});
  const std::vector<std::vector<std::uint8_t>> expected{in_bytes("value1+"), in_bytes("2")};
  EXPECT_EQ(other->multiGet({"key", "b"}), expected);
}

TEST_F(LaunchersStore, WaitsUntilAKeyIsThere) {
  const Store store = launcher_store(options_);
  std::jthread later([other = store->clone()] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    other->set("key", "value");
  });
  EXPECT_EQ(store->get_to_str("key"), "value");
  EXPECT_THAT(testing::message_of<TimeoutError>(
                  [&] { store->wait({"never"}, std::chrono::milliseconds(30)); }),
      HasSubstr("waited 30 ms for never"));
#if TORCH_VERSION_MINOR >= 13  // LibTorch 2.11 has none
  store->barrier("all", 1, std::chrono::seconds(20));
#endif
}

TEST_F(LaunchersStore, SaysWhatItDoesNotTake) {
  const Store store = launcher_store(options_);
  EXPECT_THROW(store->set("key", std::string(1 << 21, 'x')), InvalidArgument);
  store->set("key", "value");
  EXPECT_THROW(store->add("key", 1), InvalidArgument);
  options_.key = hex_of(net::random_key());
  EXPECT_THROW(launcher_store(options_), InvalidArgument);
}

TEST_F(LaunchersStore, ThatHasGoneIsSaidSo) {
  const Store store = launcher_store(options_);
  server_.reset();
  EXPECT_THROW(store->get("key"), CommError);
}

constexpr std::chrono::seconds kLongest(20);

// Of both groups one rank comes to the store before the other. If a thread waits for its peer there
// and keeps the rank's other thread from calling, both ranks wait in vain.
void split_two_groups_crosswise(const std::function<Store(int)>& store_of) {
  std::latch all_wait(2);
  const auto run_rank = [&](int rank) {
    const Store store = store_of(rank);
    std::shared_ptr<Backend> groups[2];
    for (const int each : {0, 1})
      groups[each] =
          make_gloo_backend(c10::make_intrusive<c10d::PrefixStore>(concat("group-", each), store),
              rank, 2, {.hostname = "127.0.0.1", .timeout = kLongest});
    const auto split = [&](int each) {
      EXPECT_NO_THROW(groups[each]->subgroup({0, 1})->barrier().wait());
    };
    std::jthread first([&] { split(rank); });
    all_wait.arrive_and_wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // until it waits for its peer
    split(1 - rank);
  };
  std::jthread other(run_rank, 1);
  run_rank(0);
}

TEST_F(LaunchersStore, LetsTwoThreadsSplitTwoGroups) {
  split_two_groups_crosswise([&](int) { return launcher_store(options_); });
}

TEST(TcpStore, LetsTwoThreadsSplitTwoGroups) {
  std::promise<int> port;
  auto known = port.get_future().share();
  split_two_groups_crosswise([&](int rank) {
    if (rank == 1)
      return tcp_store({.host = "127.0.0.1", .port = known.get(), .timeout = kLongest});
    const Store store = tcp_store({.host = "127.0.0.1", .serve = true, .timeout = kLongest});
    port.set_value(port_of(store));
    return store;
  });
}

/// Sets variables while it lives.
class WithVariables {
 public:
  explicit WithVariables(const std::map<std::string, std::string>& variables)
      : variables_(variables) {
    for (const auto& [name, value] : variables_) ::setenv(name.c_str(), value.c_str(), 1);
  }
  WithVariables(const WithVariables&) = delete;
  WithVariables& operator=(const WithVariables&) = delete;
  ~WithVariables() {
    for (const auto& [name, value] : variables_) ::unsetenv(name.c_str());
  }

 private:
  std::map<std::string, std::string> variables_;
};

TEST_F(LaunchersStore, GlooStartsThroughIt) {
  const WithVariables variables({{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1"},
      {"TORCHELASTIC_USE_AGENT_STORE", "False"}, {"TORCHELASTIC_RUN_ID", "job"},
      {"LOCKSTEP_STORE", options_.place}, {"LOCKSTEP_STORE_KEY", options_.key},
      {"LOCKSTEP_GENERATION", "1"}, {"LOCKSTEP_NODE_ADDRESS", "127.0.0.1"}});
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([rank] {
      const ProcessGroup world = init_process_group(
          {.backend = "gloo", .timeout = std::chrono::seconds(30), .rank = rank, .world_size = 2});
      const torch::Tensor sum = torch::full({2}, rank + 1.0);
      world.all_reduce(sum).wait();
      EXPECT_TRUE(sum.equal(torch::full({2}, 3.0)));
    });
  }
}

}  // namespace
}  // namespace lockstep
