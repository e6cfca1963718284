#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <ctime>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "lockstep/core/file_descriptor.h"
#include "lockstep/launch/launch_options.h"
#include "lockstep/launch/rendezvous/messages.h"
#include "lockstep/launch/rendezvous/world.h"
#include "lockstep/net/authentication.h"
#include "lockstep/net/client.h"
#include "lockstep/net/server.h"
#include "lockstep/net/store.h"

namespace lockstep::launch {

/// A clock that never jumps, and goes on while the machine is suspended: the others do, too.
struct BootClock {
  // NOLINTBEGIN(readability-identifier-naming): the names are the standard's.
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<BootClock>;
  static constexpr bool is_steady = true;
  // NOLINTEND(readability-identifier-naming)

  static time_point now() noexcept {
    timespec time{};
    ::clock_gettime(CLOCK_BOOTTIME, &time);
    return time_point(std::chrono::seconds(time.tv_sec) + duration(time.tv_nsec));
  }
};

/// The server's part: the world, and the keys and values of the ranks of its current generation.
class Coordinator final : public net::ServerHandler {
 public:
  /// `run` is the key of all nodes, `past` what another node served before.
  Coordinator(const WorldRules& rules, NodeFacts reference, const net::Key& run,
      std::chrono::milliseconds dead_after, const WorldPast& past = {});

  /// Returns the message that its world is served here. From any thread.
  AgentMessage whereabouts(const std::string& endpoint) const;

  Admission admit(const net::Hello& hello) override;
  void on_open(net::PeerId peer, const net::Hello& hello, net::Postbox& out) override;
  void on_message(net::PeerId peer, const std::string& message, net::Postbox& out) override;
  void on_close(net::PeerId peer, net::Postbox& out) override;
  std::optional<Clock::time_point> on_time(Clock::time_point now, net::Postbox& out) override;

 private:
  void take(net::PeerId peer, const AgentMessage& message, net::Postbox& out);
  void carry_out(Directives directives, net::Postbox& out);
  void drop_ranks(net::Postbox& out);
  void drop_silent(Clock::time_point now, net::Postbox& out);
  void look_at_clock(net::Postbox& out);
  net::Key key_of(std::int64_t generation) const {
    return net::key_of_generation(run_, generation, salt_);
  }

  World world_;
  net::Key run_;
  net::Key salt_ = net::random_key();  // so that no key of an earlier server fits
  std::chrono::milliseconds dead_after_;
  std::map<net::PeerId, Clock::time_point> agents_;  // and when they were heard last
  std::set<net::PeerId> ranks_;                      // of the present generation
  net::KeyValues values_;
  std::optional<BootClock::time_point> last_time_;  // that on_time() was called
  std::atomic<std::int64_t> generation_{0};         // of the world
};

/// A thread that tells the server at the address where a world was founded that it goes on
/// elsewhere: a launcher that is started again there would found another world.
class Herald {
 public:
  using News = std::function<AgentMessage()>;

  /// Sends the news to the origin, again and again; a try to connect must be short.
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

/// The rendezvous itself, in the launcher that serves it; empty in all others.
class Service {
 public:
  Service(
      WorldRules rules, std::chrono::milliseconds dead_after, const net::Key& key, std::string job)
      : rules_(rules), dead_after_(dead_after), key_(key), job_(std::move(job)) {}

  /// Serves at this socket, which is the endpoint's, a world of nodes that match `reference`: a new
  /// one, or the continuation of an earlier one. What it served before is over.
  void begin(FileDescriptor listener, const NodeFacts& reference, const std::string& endpoint,
      const WorldPast& past);

  bool is_here() const { return server_.has_value(); }

  /// Ends it when the last node has left, or a few seconds later.
  void say_goodbye();

 private:
  WorldRules rules_;
  std::chrono::milliseconds dead_after_;
  net::Key key_;
  std::string job_;
  std::optional<Coordinator> coordinator_;
  std::optional<net::Server> server_;
  std::optional<Herald> herald_;
};

}  // namespace lockstep::launch
