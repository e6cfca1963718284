// A server and clients over real sockets: who is let in, and who cannot hold up the others.

#include "lockstep/net/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <vector>

#include "tests/support/message_of.h"

#include "lockstep/core/error.h"
#include "lockstep/net/client.h"
#include "lockstep/net/endpoint.h"

namespace lockstep::net {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

const Key kKey = key_of_run("a secret of some length", "job");

/// Answers each message with itself, and counts who has come and gone.
class Echo final : public ServerHandler {
 public:
  Admission admit(const Hello& hello) override {
    Admission admission{.key = kKey};
    if (hello.generation == 1) admission.too_late = "generation 1 is over";
    return admission;
  }
  void on_open(PeerId, const Hello&, Postbox&) override { ++opened; }
  void on_message(PeerId peer, const std::string& message, Postbox& out) override {
    if (message == "nonsense") throw DataError("nonsense");
    if (message == "much")
      for (int i = 0; i < 100; ++i) out.send(peer, std::string(1 << 19, 'x'));
    else
      out.send(peer, message);
  }
  void on_close(PeerId, Postbox&) override { ++closed; }
  std::optional<Clock::time_point> on_time(Clock::time_point, Postbox&) override { return {}; }

  std::atomic<int> opened{0}, closed{0};
};

class Serving : public ::testing::Test {
 protected:
  explicit Serving(const ServerLimits& limits = {}) {
    auto listener = listen_at({.host = "127.0.0.1", .port = 0});
    place_ = {.host = "127.0.0.1", .port = port_of_socket(*listener)};
    server_.emplace(*std::move(listener), echo_, limits);
  }

  ClientOptions as(const Key& key, std::int64_t generation = 0) const {
    return {.endpoint = place_,
        .hello = {.job = "job", .role = Role::kRank, .generation = generation},
        .key = key,
        .timeout = std::chrono::seconds(20)};
  }

  static std::string answer_of(Client& client, const std::string& message) {
    client.send(message);
    return client.receive(Client::Clock::now() + std::chrono::seconds(20)).value_or("none");
  }

  /// Connects without saying anything yet.
  FileDescriptor raw_connection() const {
    return connect_to(place_, std::chrono::seconds(5)).socket;
  }

  /// Waits until the server has closed a connection; what it sent before is read.
  static bool is_closed(const FileDescriptor& socket, milliseconds patience) {
    const auto end = Client::Clock::now() + patience;
    char bytes[4096];
    while (Client::Clock::now() < end) {
      pollfd waited{socket.get(), POLLIN, 0};
      ::poll(&waited, 1, 20);
      const ssize_t size = ::recv(socket.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
      if (size == 0 || (size < 0 && errno != EAGAIN)) return true;
    }
    return false;
  }

  static bool eventually_is(const std::atomic<int>& value, int wanted) {
    for (int turn = 0; turn < 5000 && value != wanted; ++turn)
      std::this_thread::sleep_for(milliseconds(1));
    return value == wanted;
  }

  Echo echo_;
  Endpoint place_;
  std::optional<Server> server_;
};

TEST_F(Serving, OneWhoKnowsTheKeyIsServed) {
  Client client(as(kKey));
  EXPECT_EQ(answer_of(client, "hello"), "hello");
  const std::string large(kLargestMessage - 100, 'x');
  EXPECT_EQ(answer_of(client, large), large);
  EXPECT_EQ(client.own_address(), "127.0.0.1");
}

TEST_F(Serving, AnotherKeyIsRefused) {
  const std::string text = testing::message_of<InvalidArgument>(
      [&] { Client(as(key_of_run("a secret of some length", "other"))); });
  EXPECT_THAT(text, HasSubstr("the secret or the run's id is another than here"));
  EXPECT_EQ(echo_.opened, 0);
}

TEST_F(Serving, OneWhoComesTooLateIsTold) {
  const std::string text = testing::message_of<CommError>([&] { Client(as(kKey, 1)); });
  EXPECT_THAT(text, HasSubstr("generation 1 is over"));
}

TEST_F(Serving, WhatIsNoMessageEndsTheConnectionAndNoOther) {
  Client client(as(kKey));
  for (const std::string& bytes : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100, '\0'),
           std::string("\0\0\0\4abcd", 8), std::string("\x16\x03\x01\x02\0\1\0", 7)}) {
    const FileDescriptor socket = raw_connection();
    ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    EXPECT_TRUE(is_closed(socket, std::chrono::seconds(10)));
  }
  EXPECT_EQ(answer_of(client, "still here"), "still here");
  Client other(as(kKey));
  other.send("nonsense");
  EXPECT_THROW(other.receive(Client::Clock::now() + std::chrono::seconds(20)), CommError);
  EXPECT_EQ(answer_of(client, "still here"), "still here");
}

TEST_F(Serving, TheHandlerHearsOfTheEnd) {
  { Client client(as(kKey)); }
  EXPECT_TRUE(eventually_is(echo_.closed, 1));
}

TEST_F(Serving, OneWhoDoesNotReadIsDropped) {
  Client client(as(kKey));
  client.send("much");
  EXPECT_TRUE(eventually_is(echo_.closed, 1));
  Client other(as(kKey));
  EXPECT_EQ(answer_of(other, "hello"), "hello");
}

TEST_F(Serving, AMessageOfAnotherConnectionIsRefused) {
  Client client(as(kKey));
  const FileDescriptor socket = raw_connection();
  const std::string forged = frame_of(Sealer(kKey).seal("hello"));
  ::send(socket.get(), forged.data(), forged.size(), MSG_NOSIGNAL);
  EXPECT_TRUE(is_closed(socket, std::chrono::seconds(10)));
  EXPECT_EQ(echo_.opened, 1);
}

TEST_F(Serving, StopWaitsForThoseWhoAreKnown) {
  std::optional<Client> client(std::in_place, as(kKey));
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(50));
    client.reset();
  });
  server_->stop(std::chrono::minutes(1));
  later.join();
  EXPECT_FALSE(client);
}

TEST(Joining, OfNobodyTakesNoLongerThanIsAllowed) {
  const Endpoint nobody{.host = "127.0.0.1", .port = 1};
  EXPECT_THAT(testing::message_of<TimeoutError>([&] {
    Client({.endpoint = nobody, .hello = {}, .key = kKey, .timeout = milliseconds(100)});
  }),
      HasSubstr("127.0.0.1:1: nobody serves there: Connection refused, for 100 ms"));
  EXPECT_THROW(Client({.endpoint = nobody,
                   .hello = {},
                   .key = kKey,
                   .timeout = std::chrono::minutes(5),
                   .gives_up = [] { return true; }}),
      CommError);
}

TEST(Joining, GivesUpOneThatRefusesAndWaitsForOneThatIsSlow) {
  ClientOptions options{.endpoint = {.host = "127.0.0.1", .port = 1},
      .hello = {},
      .key = kKey,
      .timeout = std::chrono::minutes(5),
      .most_refusals = 4};
  EXPECT_THAT(testing::message_of<CommError>([&] { Client client(options); }),
      HasSubstr("127.0.0.1:1: nobody serves there: Connection refused"));
  const auto silent = listen_at({.host = "127.0.0.1", .port = 0});
  options.endpoint.port = port_of_socket(*silent);
  options.timeout = milliseconds(100);
  options.most_refusals = 1;
  EXPECT_THAT(testing::message_of<TimeoutError>([&] { Client client(options); }),
      HasSubstr("sends no challenge"));
}

/// Limits of a server that allows few unauthenticated connections, each for so long.
ServerLimits few_strangers(milliseconds for_proof) {
  return {.unauthenticated = 16, .unauthenticated_of_a_host = 8, .for_proof = for_proof};
}

class Besieged : public Serving {
 protected:
  Besieged() : Serving(few_strangers(milliseconds(300))) {}
};

TEST_F(Besieged, PeersThatSayNothingOrHalfAreClosedInTime) {
  const FileDescriptor silent = raw_connection(), half = raw_connection();
  ::send(half.get(), "\0\0", 2, MSG_NOSIGNAL);
  EXPECT_TRUE(is_closed(silent, std::chrono::seconds(10)));
  EXPECT_TRUE(is_closed(half, std::chrono::seconds(10)));
}

TEST_F(Besieged, SlowWritersHoldUpNobody) {
  std::vector<FileDescriptor> slow;
  for (int i = 0; i < 6; ++i) slow.push_back(raw_connection());
  Client client(as(kKey));
  for (int turn = 0; turn < 50; ++turn) {
    for (const FileDescriptor& each : slow) ::send(each.get(), "\0", 1, MSG_NOSIGNAL);
    EXPECT_EQ(answer_of(client, "hello"), "hello");
  }
}

class Crowded : public Serving {
 protected:
  Crowded() : Serving(few_strangers(std::chrono::minutes(10))) {}
};

TEST_F(Crowded, AFloodKeepsNobodyOutAndTheOldestGiveWay) {
  Client before(as(kKey));
  std::vector<FileDescriptor> flood;
  for (int i = 0; i < 300; ++i) {
    flood.push_back(raw_connection());
    if (i % 50 == 0) {
      Client meanwhile(as(kKey));
      EXPECT_EQ(answer_of(meanwhile, "let me in"), "let me in");
    }
  }
  EXPECT_EQ(answer_of(before, "hello"), "hello");
  EXPECT_EQ(echo_.opened, 7);
  for (std::size_t i = 0; i + 8 < flood.size(); ++i)
    ASSERT_TRUE(is_closed(flood[i], std::chrono::seconds(10))) << i;
  EXPECT_FALSE(is_closed(flood.back(), milliseconds(50)));
}

}  // namespace
}  // namespace lockstep::net
