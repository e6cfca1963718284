#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/net/client.h"

namespace lockstep::net {

/// The operations of the store of a generation's ranks.
enum class StoreOp : std::uint8_t {
  kSet,         ///< each key to its value
  kGet,         ///< the values of all keys, when all are there; `number` is the patience in ms
  kWait,        ///< the same without the values
  kAdd,         ///< `number` to the number that the key is, 0 where it is not there
  kCompareSet,  ///< the second value, if the key has the first, or is not there and that is empty
  kCheck,       ///< whether all keys are there
  kDelete,      ///< the key; whether it was there
  kCount,       ///< of all keys
  kAppend,      ///< the value to that of the key
};

struct StoreRequest {
  StoreOp op = StoreOp::kCount;
  std::uint32_t id = 0;  ///< the reply has the same
  std::vector<std::string> keys = {};
  std::vector<std::string> values = {};
  std::int64_t number = 0;
};

enum class StoreStatus : std::uint8_t {
  kDone,
  kTooLate,  ///< the keys did not come in time
  kRefused,  ///< `values` has the reason
};

struct StoreReply {
  std::uint32_t id = 0;
  StoreStatus status = StoreStatus::kDone;
  std::vector<std::string> values = {};
  std::int64_t number = 0;
};

std::string bytes_of(const StoreRequest& request);
std::string bytes_of(const StoreReply& reply);

/// Reads a request with as many keys and values as its kind has. Throws DataError otherwise.
StoreRequest store_request_of(std::string_view bytes);
StoreReply store_reply_of(std::string_view bytes);

/// The keys and values of one generation's ranks, and the requests that wait for keys: no sockets,
/// threads or clock.
class KeyValues {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// A reply and its receiver.
  struct Answer {
    std::uint64_t to;
    StoreReply reply;
  };
  using Answers = std::vector<Answer>;

  /// Carries out a request of that connection. Returns its answer, unless it waits, and those to
  /// others that waited for what it set.
  Answers take(std::uint64_t from, const StoreRequest& request, Time now);

  /// Answers the requests that have timed out.
  Answers expire(Time now);

  /// Returns the next deadline, if any.
  std::optional<Time> next_expiry() const;

  /// Forgets what a connection that has gone waits for.
  void forget(std::uint64_t from);

  /// Forgets everything, before another generation.
  void clear();

 private:
  struct Waiting {
    std::uint64_t from;
    StoreRequest request;
    Time until;
  };

  StoreReply answer_now(const StoreRequest& request);
  StoreReply append(const StoreRequest& request);
  StoreReply add(const StoreRequest& request);
  StoreReply compare_set(const StoreRequest& request);
  void put(const std::string& key, std::string value);
  bool has_all(const std::vector<std::string>& keys) const;
  bool fits(const StoreRequest& request) const;
  StoreReply with_values(const StoreRequest& request) const;
  void answer_waiting(Answers& answers);

  std::map<std::string, std::string> values_;
  std::vector<Waiting> waiting_;
  std::size_t bytes_ = 0;
  bool has_new_ = false;  // keys since the waiting requests were checked
};

/// A rank's connection to the keys and values of its generation. Calls may come from several
/// threads; they are carried out one after the other.
class StoreClient {
 public:
  explicit StoreClient(const ClientOptions& options) : client_(options) {}

  /// Sends a request and returns the reply; a request that waits does so for `patience`.
  ///
  /// Throws TimeoutError that names the keys that did not come, InvalidArgument for what the store
  /// refuses, CommError when it has gone or does not answer.
  StoreReply ask(StoreRequest request, std::chrono::milliseconds patience);

 private:
  std::mutex mutex_;
  Client client_;
  std::uint32_t last_ = 0;
};

}  // namespace lockstep::net
