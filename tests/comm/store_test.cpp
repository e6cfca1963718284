// Conformance cases S1 to S6, restated from PyTorch's store tests, for the stores that Lockstep
// opens; and whether those who meet at one place are one world.

#include "lockstep/comm/store.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <system_error>
#include <thread>
#include <unistd.h>

#include "tests/support/failing_call.h"
#include "tests/support/message_of.h"

#include "lockstep/comm/ask_store.h"
#include "lockstep/comm/rendezvous.h"
#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::uint8_t> bytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string text(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

Store loopback_store() { return tcp_store({.host = "127.0.0.1", .serve = true}); }

void expect_basic_behaviour(const Store& store) {
  for (const int amount : {1, 2, 3}) store->add("key", amount);
  for (int amount = 1; amount <= 6; ++amount) store->add("key3", amount);
  store->set("key0", bytes("value0"));
  EXPECT_EQ(text(store->get("key")), "6");
  EXPECT_EQ(text(store->get("key3")), "21");
  EXPECT_EQ(text(store->get("key0")), "value0");
}

// Closing a store takes a while, as joining its thread does.
std::shared_ptr<void> closes_slowly(std::atomic<bool>& closed) {
  return {nullptr, [&closed](void*) {
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
            closed = true;
          }};
}

TEST(Store, IsClosedWhenTheLastQuestionIsAnswered) {
  std::atomic<bool> closed{false};
  const auto ask = [&](auto answer) {
    closed = false;
    return within(
        std::chrono::minutes(1), [answer, store = closes_slowly(closed)] { return answer(); });
  };
  EXPECT_EQ(ask([] { return 5; }), 5);
  EXPECT_TRUE(closed);
  EXPECT_THROW(ask([]() -> int { throw Error("no"); }), Error);
  EXPECT_TRUE(closed);
}

TEST(Store, S1AddSetAndGet) {
  expect_basic_behaviour(memory_store());
  expect_basic_behaviour(loopback_store());
  const std::string path =
      ::testing::TempDir() + "lockstep-store-test-" + std::to_string(::getpid());
  expect_basic_behaviour(file_store(path, 1));
  EXPECT_NE(::access(path.c_str(), F_OK), 0) << "the last user removes the file";
}

TEST(Store, S2S3CompareAndSet) {
  const Store store = loopback_store();
  store->set("key", bytes("value0"));
  EXPECT_EQ(text(store->compareSet("key", bytes("wrong"), bytes("value1"))), "value0");
  EXPECT_EQ(text(store->compareSet("key", bytes("value0"), bytes("value1"))), "value1");
  EXPECT_EQ(text(store->compareSet("missing", bytes("guess"), bytes("value"))), "guess");
  EXPECT_FALSE(store->check({"missing"}));
  EXPECT_EQ(text(store->compareSet("missing", bytes(""), bytes("value"))), "value");
}

TEST(Store, S5ATakenPortIsSaidSo) {
  const Store store = loopback_store();
  try {
    tcp_store({.host = "127.0.0.1", .port = port_of(store), .serve = true});
    FAIL() << "the port was had twice";
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code(), std::errc::address_in_use);
    EXPECT_THAT(error.what(), HasSubstr("127.0.0.1:" + std::to_string(port_of(store))));
  }
}

TEST(Store, S5ClientsSeeOneAnother) {
  const Store server = loopback_store();
  std::vector<std::jthread> clients;
  for (int client = 0; client < 5; ++client) {
    clients.emplace_back([&, client] {
      const Store store = tcp_store({.host = "127.0.0.1", .port = port_of(server)});
      store->set("client-" + std::to_string(client), bytes(std::to_string(client)));
      EXPECT_EQ(text(store->get("client-" + std::to_string((client + 1) % 5))),
          std::to_string((client + 1) % 5));
    });
  }
}

TEST(Store, ItListensOnTheNamedAddressOnly) {
  const Store store = loopback_store();
  EXPECT_THROW(
      tcp_store(
          {.host = "127.0.0.2", .port = port_of(store), .timeout = std::chrono::milliseconds(300)}),
      CommError);
}

TEST(ExchangeTexts, EveryoneSeesAllInRankOrder) {
  const Store store = memory_store();
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto texts =
          exchange_texts(store, "names", rank, 3, concat("r", rank), std::chrono::seconds(20));
      EXPECT_THAT(texts, ElementsAre("r0", "r1", "r2"));
    });
  }
}

TEST(ExchangeTexts, S4TheRanksThatDoNotComeAreNamed) {
  const Store store = memory_store();
  EXPECT_EQ(testing::message_of<TimeoutError>([&] {
    exchange_texts(store, "hosts", 0, 3, "here", std::chrono::milliseconds(30));
  }),
      "hosts: waited 30 ms for rank 1, 2 of 3");
}

// Code 4, not 5: to try again would not help.
TEST(ExchangeTexts, WhereNoThreadCanBeginItIsTheHostsFault) {
  const Store store = memory_store();
  const testing::NoThreads none;
  EXPECT_THAT(testing::message_of<std::system_error>(
                  [&] { exchange_texts(store, "hosts", 0, 1, "here", std::chrono::seconds(1)); }),
      HasSubstr("start a thread"));
}

class Environment : public ::testing::Test {
 protected:
  void set(const char* name, const char* value) { ::setenv(name, value, 1); }
  void TearDown() override {
    for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) ::unsetenv(name);
  }
  static std::string refusal() {
    return testing::message_of<InvalidArgument>([] { init_process_group(); });
  }
};

TEST_F(Environment, AloneItIsAGroupOfOne) {
  TearDown();
  EXPECT_EQ(init_process_group().size(), 1);
  EXPECT_EQ(init_process_group().backend_name(), "single");
}

TEST_F(Environment, M5AnEmptyOrMissingRankNeverTrainsAlone) {
  set("RANK", "");
  set("WORLD_SIZE", "2");
  EXPECT_EQ(refusal(), "environment: RANK is set, but empty; give it a value, or unset it");
  ::unsetenv("RANK");
  EXPECT_THAT(refusal(), HasSubstr("WORLD_SIZE implies 1 other ranks, but RANK is not set"));
  set("RANK", "0");
  set("WORLD_SIZE", "1099511627776");
  EXPECT_THAT(refusal(), HasSubstr("WORLD_SIZE must be a whole number from 0 to 1000000"));
}

TEST_F(Environment, S6TheMissingVariableIsNamed) {
  set("RANK", "0");
  EXPECT_THAT(refusal(), HasSubstr("WORLD_SIZE is not"));
  set("WORLD_SIZE", "2");
  EXPECT_THAT(refusal(), HasSubstr("MASTER_ADDR is not"));
  set("MASTER_ADDR", "127.0.0.1");
  EXPECT_THAT(refusal(), HasSubstr("MASTER_PORT is not"));
  set("MASTER_PORT", "70000");
  EXPECT_THAT(refusal(), HasSubstr("not a port: 70000"));
  set("RANK", "2");
  EXPECT_THAT(refusal(), HasSubstr("RANK must be below WORLD_SIZE: 2 of 2"));
}

TEST_F(Environment, AnUnknownBackendIsRefused) {
  EXPECT_THROW(init_process_group({.backend = "smoke-signals"}), InvalidArgument);
}

using ::testing::AllOf;

constexpr std::chrono::milliseconds kRollCallWait(50);

/// A store at which ranks of several processes come one after the other.
class RollCall : public ::testing::Test {
 protected:
  void come(int rank, int size, const std::string& process, const std::string& run = "a") const {
    check_one_world(store_,
        {.rank = rank, .size = size, .run = run, .process = process, .place = "node0:1"},
        kRollCallWait);
  }

  std::string refusal(
      int rank, int size, const std::string& process, const std::string& run = "a") const {
    return testing::message_of<InvalidArgument>([&] { come(rank, size, process, run); });
  }

  /// Returns why a rank that has come does not meet the others.
  template <typename Expected>
  std::string end_of_meeting(int size) const {
    return testing::message_of<Expected>(
        [&] { exchange_texts(store_, "hosts", 0, size, "here", kRollCallWait); });
  }

  Store store_ = memory_store();
};

TEST_F(RollCall, TakesEachRankOnce) {
  come(0, 2, "p0");
  come(1, 2, "p1\ntoken");
  come(1, 2, "p1\ntoken");  // a second group of the same processes
  EXPECT_THAT(refusal(1, 2, "p2\ntoken"),
      HasSubstr("two processes are rank 1 of the world at node0:1: p1 and p2; give each"));
  EXPECT_THAT(end_of_meeting<InvalidArgument>(2), HasSubstr("two processes are rank 1"));
}

TEST_F(RollCall, RefusesAnotherSizeForAll) {
  come(0, 4, "p0");
  EXPECT_THAT(refusal(1, 2, "p1"),
      AllOf(HasSubstr("rank 1 (p1) has a world of 2 ranks, rank 0 at node0:1 has one of 4"),
          HasSubstr("WORLD_SIZE")));
  EXPECT_THAT(end_of_meeting<InvalidArgument>(4), HasSubstr("rank 1 (p1) has a world of 2"));
}

TEST_F(RollCall, RefusesAnotherRunWithoutHarmToThisOne) {
  come(0, 2, "p0");
  EXPECT_THAT(refusal(1, 2, "p1", "b"), HasSubstr("has met another run at node0:1"));
  EXPECT_THAT(refusal(0, 2, "p1", "b"), HasSubstr("has met another run at node0:1"));
  EXPECT_THAT(end_of_meeting<TimeoutError>(2), HasSubstr("waited 50 ms for rank 1 of 2"));
}

TEST_F(RollCall, WaitsForRankZero) {
  EXPECT_EQ(testing::message_of<TimeoutError>([&] { come(1, 2, "p1"); }),
      "init_process_group: waited 50 ms for rank 0");
}

TEST(ThisProcess, HasANameOfItsOwn) {
  EXPECT_EQ(this_process(), this_process());
  EXPECT_THAT(this_process(), HasSubstr(concat(", pid ", ::getpid(), "\n")));
}

}  // namespace
}  // namespace lockstep
