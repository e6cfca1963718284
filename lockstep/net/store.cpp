#include "lockstep/net/store.h"

#include <algorithm>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/net/wire.h"

namespace lockstep::net {
namespace {

bool has_its_parts(const StoreRequest& request) {
  const std::size_t keys = request.keys.size(), values = request.values.size();
  switch (request.op) {
    case StoreOp::kSet:
      return values == keys;
    case StoreOp::kGet:
    case StoreOp::kWait:
    case StoreOp::kCheck:
      return values == 0;
    case StoreOp::kCompareSet:
      return keys == 1 && values == 2;
    case StoreOp::kAppend:
      return keys == 1 && values == 1;
    case StoreOp::kAdd:
    case StoreOp::kDelete:
      return keys == 1 && values == 0;
    case StoreOp::kCount:
      return keys == 0 && values == 0;
  }
  return false;
}

using std::chrono::milliseconds;

// Of one generation: far above what meeting takes, far below what would harm the launcher.
constexpr std::size_t kMostBytes = std::size_t{256} << 20, kMostOfAKey = 4096;
constexpr std::size_t kAKeyItself = 64;  // overhead
constexpr std::int64_t kLongestPatience = 30LL * 24 * 3600 * 1000;

std::size_t size_of(const std::string& key, const std::string& value) {
  return key.size() + value.size() + kAKeyItself;
}

StoreReply refusal(const StoreRequest& request, const std::string& why) {
  return {.id = request.id, .status = StoreStatus::kRefused, .values = {why}};
}

StoreReply number_reply(const StoreRequest& request, std::int64_t number) {
  return {.id = request.id, .number = number};
}

bool may_wait(const StoreRequest& request) {
  return request.op == StoreOp::kGet || request.op == StoreOp::kWait;
}

constexpr std::chrono::seconds kForAnAnswer(
    10);                            // beyond the time that the request itself may wait
constexpr std::size_t kSpare = 64;  // for the tag

}  // namespace

std::string bytes_of(const StoreRequest& request) {
  ByteWriter writer;
  writer.byte(request.op).count(request.id).number(request.number);
  return writer.texts(request.keys).texts(request.values).take();
}

std::string bytes_of(const StoreReply& reply) {
  ByteWriter writer;
  writer.byte(reply.status).count(reply.id).number(reply.number);
  return writer.texts(reply.values).take();
}

StoreRequest store_request_of(std::string_view bytes) {
  ByteReader reader(bytes);
  StoreRequest request;
  request.op = reader.one_of(StoreOp::kAppend, "store");
  request.id = reader.count();
  request.number = reader.number();
  request.keys = reader.texts();
  request.values = reader.texts();
  reader.finish();
  if (!has_its_parts(request)) throw DataError("store: a request with other parts than it needs");
  return request;
}

StoreReply store_reply_of(std::string_view bytes) {
  ByteReader reader(bytes);
  StoreReply reply;
  reply.status = reader.one_of(StoreStatus::kRefused, "store");
  reply.id = reader.count();
  reply.number = reader.number();
  reply.values = reader.texts();
  reader.finish();
  return reply;
}

KeyValues::Answers KeyValues::take(std::uint64_t from, const StoreRequest& request, Time now) {
  Answers answers;
  if (may_wait(request) && !has_all(request.keys)) {
    const auto patience = std::clamp<std::int64_t>(request.number, 0, kLongestPatience);
    waiting_.push_back({from, request, now + milliseconds(patience)});
    return answers;
  }
  answers.push_back({from, answer_now(request)});
  if (has_new_) answer_waiting(answers);
  return answers;
}

KeyValues::Answers KeyValues::expire(Time now) {
  Answers answers;
  std::erase_if(waiting_, [&](const Waiting& each) {
    if (each.until > now) return false;
    answers.push_back({each.from, {.id = each.request.id, .status = StoreStatus::kTooLate}});
    return true;
  });
  return answers;
}

std::optional<KeyValues::Time> KeyValues::next_expiry() const {
  const auto first = std::min_element(waiting_.begin(), waiting_.end(),
      [](const Waiting& a, const Waiting& b) { return a.until < b.until; });
  return first == waiting_.end() ? std::nullopt : std::optional(first->until);
}

void KeyValues::forget(std::uint64_t from) {
  std::erase_if(waiting_, [&](const Waiting& each) { return each.from == from; });
}

void KeyValues::clear() { *this = KeyValues(); }

StoreReply KeyValues::answer_now(const StoreRequest& request) {
  if (!fits(request)) return refusal(request, "the store is full, or a key is too long");
  switch (request.op) {
    case StoreOp::kSet:
      for (std::size_t i = 0; i < request.keys.size(); ++i) put(request.keys[i], request.values[i]);
      return number_reply(request, 1);
    case StoreOp::kGet:
      return with_values(request);
    case StoreOp::kWait:
      return number_reply(request, 1);
    case StoreOp::kAdd:
      return add(request);
    case StoreOp::kCompareSet:
      return compare_set(request);
    case StoreOp::kCheck:
      return number_reply(request, has_all(request.keys) ? 1 : 0);
    case StoreOp::kCount:
      return number_reply(request, std::ssize(values_));
    case StoreOp::kAppend:
      return append(request);
    case StoreOp::kDelete:
      break;
  }
  const auto found = values_.find(request.keys.front());
  if (found == values_.end()) return number_reply(request, 0);
  bytes_ -= size_of(found->first, found->second);
  values_.erase(found);
  return number_reply(request, 1);
}

StoreReply KeyValues::append(const StoreRequest& request) {
  const std::string& key = request.keys.front();
  const auto found = values_.find(key);
  put(key, (found == values_.end() ? "" : found->second) + request.values.front());
  return number_reply(request, 1);
}

StoreReply KeyValues::add(const StoreRequest& request) {
  const std::string& key = request.keys.front();
  const auto found = values_.find(key);
  const auto before = found == values_.end() ? 0 : parse_number<std::int64_t>(found->second);
  std::int64_t sum = 0;
  if (!before || __builtin_add_overflow(*before, request.number, &sum))
    return refusal(request, concat("add: the key is no number that it could be added to: ", key));
  put(key, std::to_string(sum));
  return number_reply(request, sum);
}

// As c10d's stores do it: the value that is there then, or what was expected where none is.
StoreReply KeyValues::compare_set(const StoreRequest& request) {
  const std::string &key = request.keys[0], &expected = request.values[0];
  const std::string& wanted = request.values[1];
  const auto found = values_.find(key);
  const bool sets = found == values_.end() ? expected.empty() : found->second == expected;
  if (sets) put(key, wanted);
  const std::string now = sets ? wanted : found == values_.end() ? expected : found->second;
  return {.id = request.id, .values = {now}};
}

void KeyValues::put(const std::string& key, std::string value) {
  const auto [place, is_new] = values_.try_emplace(key);
  bytes_ += size_of(key, value) - (is_new ? 0 : size_of(key, place->second));
  place->second = std::move(value);
  has_new_ = has_new_ || is_new;
}

bool KeyValues::has_all(const std::vector<std::string>& keys) const {
  return std::all_of(
      keys.begin(), keys.end(), [&](const std::string& key) { return values_.contains(key); });
}

bool KeyValues::fits(const StoreRequest& request) const {
  std::size_t more = 0;
  for (const std::string& value : request.values) more += value.size();
  for (const std::string& key : request.keys) {
    if (key.size() > kMostOfAKey) return false;
    more += key.size() + kAKeyItself;
  }
  const bool writes = request.op == StoreOp::kAdd || !request.values.empty();
  return !writes || bytes_ + more <= kMostBytes;
}

StoreReply KeyValues::with_values(const StoreRequest& request) const {
  StoreReply reply{.id = request.id};
  std::size_t bytes = kAKeyItself;
  for (const std::string& key : request.keys) {
    reply.values.push_back(values_.at(key));
    bytes += reply.values.back().size() + kAKeyItself;
  }
  if (bytes > kLargestMessage) return refusal(request, "the values are too long for one answer");
  return reply;
}

void KeyValues::answer_waiting(Answers& answers) {
  has_new_ = false;
  std::erase_if(waiting_, [&](const Waiting& each) {
    if (!has_all(each.request.keys)) return false;
    answers.push_back({each.from, answer_now(each.request)});
    return true;
  });
}

StoreReply StoreClient::ask(StoreRequest request, std::chrono::milliseconds patience) {
  const std::lock_guard lock(mutex_);
  request.id = ++last_;
  if (request.op == StoreOp::kGet || request.op == StoreOp::kWait)
    request.number = patience.count();
  const std::string question = bytes_of(request);
  check(question.size() <= kLargestMessage - kSpare, "store: ", question.size(), " bytes for ",
      first_of(request.keys, request.keys.size()), " are too many at once; ",
      kLargestMessage - kSpare, " are allowed");
  client_.send(question);
  const auto end = Client::Clock::now() + patience + kForAnAnswer;
  while (const auto message = client_.receive(end)) {
    StoreReply reply = store_reply_of(*message);
    if (reply.id != request.id) continue;  // to an earlier request that timed out
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
