#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/net/client.h"
#include "lockstep/net/store_messages.h"

namespace lockstep::net {

/// A rank's connection to the keys and values of its generation. Calls may come from several
/// threads; they are carried out one after the other.
class StoreClient {
 public:
  explicit StoreClient(const ClientOptions& options) : client_(options) {}

  /// Asks, and returns the reply. A request that waits does so for `patience`.
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
