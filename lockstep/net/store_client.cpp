#include "lockstep/net/store_client.h"

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/net/frame.h"

namespace lockstep::net {
namespace {

constexpr std::chrono::seconds kForAnAnswer(10);  // beyond what was to be waited for
constexpr std::size_t kSpare = 64;                // for the mark

}  // namespace

StoreReply StoreClient::ask(StoreRequest request, std::chrono::milliseconds patience) {
  const std::lock_guard lock(mutex_);
  request.id = ++last_;
  if (request.op == StoreOp::kGet || request.op == StoreOp::kWait)
    request.number = patience.count();
  const std::string question = bytes_of(request);
  check(question.size() <= kMostOfAFriend - kSpare, "store: ", question.size(), " bytes for ",
      first_of(request.keys, request.keys.size()), " are too many at once; ",
      kMostOfAFriend - kSpare, " are allowed");
  client_.send(question);
  const auto end = Client::Clock::now() + patience + kForAnAnswer;
  while (const auto message = client_.receive(end)) {
    StoreReply reply = store_reply_of(*message);
    if (reply.id != request.id) continue;  // to one who did not wait for it
    if (reply.status == StoreStatus::kTooLate)
      throw TimeoutError(concat("store: waited ", patience.count(), " ms for ",
          first_of(request.keys, request.keys.size())));
    if (reply.status == StoreStatus::kRefused)
      throw InvalidArgument(concat("store: ", joined(reply.values)));
    return reply;
  }
  throw TimeoutError("store: the node that serves it does not answer");
}

}  // namespace lockstep::net
