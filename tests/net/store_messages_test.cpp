#include <gtest/gtest.h>

#include "lockstep/core/error.h"
#include "lockstep/net/store.h"

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

}  // namespace
}  // namespace lockstep::net
