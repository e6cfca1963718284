#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "lockstep/launch/rendezvous/messages.h"
#include "lockstep/net/client.h"

namespace lockstep::launch {

/// A thread that tells whoever serves where a world was founded that it goes on elsewhere: a
/// launcher that is started again there would found another.
class Herald {
 public:
  using News = std::function<AgentMessage()>;

  /// Begins to ask at the origin, again and again, and to tell this news. Both must hold no longer
  /// than one try to connect.
  Herald(const net::ClientOptions& origin, News news);
  Herald(const Herald&) = delete;
  Herald& operator=(const Herald&) = delete;
  ~Herald();

 private:
  void run();

  net::ClientOptions origin_;
  News news_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace lockstep::launch
