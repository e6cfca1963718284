#include "lockstep/net/store.h"

#include <gtest/gtest.h>

#include "lockstep/core/error.h"

namespace lockstep::net {
namespace {

TEST(StoreMessages, AreReadAsTheyWereWritten) {
  const StoreRequest request{
      .op = StoreOp::kCompareSet, .id = 7, .keys = {"k"}, .values = {"a", "b"}, .number = -1};
  const StoreRequest read = store_request_of(bytes_of(request));
  EXPECT_EQ(read.op, request.op);
  EXPECT_EQ(read.id, request.id);
  EXPECT_EQ(read.keys, request.keys);
  EXPECT_EQ(read.values, request.values);
  EXPECT_EQ(read.number, request.number);
  const StoreReply reply{.id = 7, .status = StoreStatus::kTooLate, .values = {"x"}, .number = 3};
  const StoreReply again = store_reply_of(bytes_of(reply));
  EXPECT_EQ(again.id, reply.id);
  EXPECT_EQ(again.status, reply.status);
  EXPECT_EQ(again.values, reply.values);
  EXPECT_EQ(again.number, reply.number);
}

TEST(StoreMessages, WithOtherPartsThanTheyNeedAreRefused) {
  for (const StoreRequest& request : {StoreRequest{.op = StoreOp::kSet, .keys = {"k"}},
           {.op = StoreOp::kCompareSet, .keys = {"k"}, .values = {"a"}},
           {.op = StoreOp::kAdd, .keys = {}}, {.op = StoreOp::kAppend, .keys = {"k"}},
           {.op = StoreOp::kDelete, .keys = {"a", "b"}}, {.op = StoreOp::kCount, .keys = {"k"}},
           {.op = StoreOp::kGet, .keys = {"k"}, .values = {"v"}}})
    EXPECT_THROW(store_request_of(bytes_of(request)), DataError);
  EXPECT_THROW(store_request_of(""), DataError);
  std::string unknown = bytes_of(StoreRequest{});
  unknown[0] = 100;
  EXPECT_THROW(store_request_of(unknown), DataError);
}

using std::chrono::milliseconds;
using Texts = std::vector<std::string>;

class Values : public ::testing::Test {
 protected:
  /// Returns the reply to a request that does not wait.
  StoreReply reply(const StoreRequest& request) {
    const auto answers = values_.take(1, request, now_);
    EXPECT_FALSE(answers.empty());
    return answers.empty() ? StoreReply{} : answers.front().reply;
  }

  void set(const std::string& key, const std::string& value) {
    EXPECT_EQ(
        reply({.op = StoreOp::kSet, .keys = {key}, .values = {value}}).status, StoreStatus::kDone);
  }

  std::string get(const std::string& key) {
    return reply({.op = StoreOp::kGet, .keys = {key}}).values.at(0);
  }

  Texts compare_set(
      const std::string& key, const std::string& expected, const std::string& wanted) {
    return reply({.op = StoreOp::kCompareSet, .keys = {key}, .values = {expected, wanted}}).values;
  }

  KeyValues values_;
  KeyValues::Time now_{};
};

TEST_F(Values, AreSetAddedAndRead) {
  set("key", "value");
  EXPECT_EQ(get("key"), "value");
  EXPECT_EQ(reply({.op = StoreOp::kAdd, .keys = {"sum"}, .number = 2}).number, 2);
  EXPECT_EQ(reply({.op = StoreOp::kAdd, .keys = {"sum"}, .number = -5}).number, -3);
  EXPECT_EQ(get("sum"), "-3");
  EXPECT_EQ(reply({.op = StoreOp::kCount}).number, 2);
  reply({.op = StoreOp::kAppend, .keys = {"key"}, .values = {"+"}});
  EXPECT_EQ(get("key"), "value+");
  EXPECT_EQ(reply({.op = StoreOp::kDelete, .keys = {"key"}}).number, 1);
  EXPECT_EQ(reply({.op = StoreOp::kDelete, .keys = {"key"}}).number, 0);
  EXPECT_EQ(reply({.op = StoreOp::kCheck, .keys = {"sum", "key"}}).number, 0);
  EXPECT_EQ(reply({.op = StoreOp::kCheck, .keys = {"sum"}}).number, 1);
}

TEST_F(Values, CompareAndSetAsInPyTorch) {
  set("key", "value0");
  EXPECT_EQ(compare_set("key", "wrong", "value1"), Texts{"value0"});
  EXPECT_EQ(compare_set("key", "value0", "value1"), Texts{"value1"});
  EXPECT_EQ(compare_set("missing", "guess", "value"), Texts{"guess"});
  EXPECT_EQ(reply({.op = StoreOp::kCheck, .keys = {"missing"}}).number, 0);
  EXPECT_EQ(compare_set("missing", "", "value"), Texts{"value"});
}

TEST_F(Values, AddingToWhatIsNoNumberIsRefused) {
  set("key", "value");
  EXPECT_EQ(
      reply({.op = StoreOp::kAdd, .keys = {"key"}, .number = 1}).status, StoreStatus::kRefused);
  set("most", "9223372036854775807");
  EXPECT_EQ(
      reply({.op = StoreOp::kAdd, .keys = {"most"}, .number = 1}).status, StoreStatus::kRefused);
}

TEST_F(Values, AreWaitedForUntilAllAreThere) {
  const StoreRequest both{.op = StoreOp::kGet, .id = 5, .keys = {"a", "b"}, .number = 1000};
  EXPECT_TRUE(values_.take(2, both, now_).empty());
  EXPECT_EQ(
      values_.take(1, {.op = StoreOp::kSet, .keys = {"a"}, .values = {"1"}}, now_).size(), 1U);
  const auto answers = values_.take(1, {.op = StoreOp::kSet, .keys = {"b"}, .values = {"2"}}, now_);
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[1].to, 2U);
  EXPECT_EQ(answers[1].reply.id, 5U);
  EXPECT_EQ(answers[1].reply.values, (Texts{"1", "2"}));
  EXPECT_FALSE(values_.next_expiry());
}

TEST_F(Values, AreNotWaitedForWithoutEnd) {
  values_.take(2, {.op = StoreOp::kWait, .id = 5, .keys = {"a"}, .number = 1000}, now_);
  values_.take(3, {.op = StoreOp::kWait, .keys = {"a"}, .number = 2000}, now_);
  EXPECT_EQ(values_.next_expiry(), now_ + milliseconds(1000));
  EXPECT_TRUE(values_.expire(now_ + milliseconds(999)).empty());
  const auto answers = values_.expire(now_ + milliseconds(1000));
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].reply.status, StoreStatus::kTooLate);
  EXPECT_EQ(answers[0].reply.id, 5U);
  values_.forget(3);
  EXPECT_FALSE(values_.next_expiry());
}

TEST_F(Values, AreBounded) {
  EXPECT_EQ(reply({.op = StoreOp::kSet, .keys = {std::string(5000, 'k')}, .values = {""}}).status,
      StoreStatus::kRefused);
  const std::string large(1000 * 1000, 'x');
  auto status = StoreStatus::kDone;
  int count = 0;
  for (; status == StoreStatus::kDone && count < 1000; ++count)
    status =
        reply({.op = StoreOp::kSet, .keys = {std::to_string(count)}, .values = {large}}).status;
  EXPECT_EQ(status, StoreStatus::kRefused);
  EXPECT_NEAR(count, 268, 2) << "of 256 MiB";
  EXPECT_EQ(reply({.op = StoreOp::kGet, .keys = {"0", "1"}}).status, StoreStatus::kRefused)
      << "too much for one answer";
  values_.clear();
  set("key", large);
  EXPECT_EQ(reply({.op = StoreOp::kCount}).number, 1);
}

}  // namespace
}  // namespace lockstep::net
