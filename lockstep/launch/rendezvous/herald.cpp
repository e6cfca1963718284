#include "lockstep/launch/rendezvous/herald.h"

#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/launch/patience.h"
#include "lockstep/net/without_signals.h"

namespace lockstep::launch {

Herald::Herald(const net::ClientOptions& origin, News news)
    : origin_(origin), news_(std::move(news)) {
  thread_ = net::without_signals([this] { run(); });
}

Herald::~Herald() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  over_.notify_all();
  thread_.join();
}

void Herald::run() {
  std::unique_lock lock(mutex_);
  while (!is_over_) {
    lock.unlock();
    try {
      net::Client(origin_).send(bytes_of(news_()));
    } catch (const std::exception&) {
      // Nobody is there, or somebody else.
    }
    lock.lock();
    over_.wait_for(lock, patience::kToAskAgain, [this] { return is_over_; });
  }
}

}  // namespace lockstep::launch
