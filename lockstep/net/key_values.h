#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/net/store_messages.h"

namespace lockstep::net {

/// The keys and values of one generation's ranks, and who waits for which: without sockets, threads
/// or a clock.
class KeyValues {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// A reply, and to whom it goes.
  struct Answer {
    std::uint64_t to;
    StoreReply reply;
  };
  using Answers = std::vector<Answer>;

  /// Carries out a request of that connection. The answers are its own, unless it waits, and those
  /// to others who have waited for what it set.
  Answers take(std::uint64_t from, const StoreRequest& request, Time now);

  /// Answers those whose patience is over.
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
  StoreReply set_all(const StoreRequest& request);
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
  bool has_new_ = false;  // a key since the waiting were looked at
};

}  // namespace lockstep::net
