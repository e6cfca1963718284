#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/core/file_descriptor.h"
#include "lockstep/launch/launch_options.h"
#include "lockstep/launch/rendezvous/messages.h"
#include "lockstep/launch/rendezvous/service.h"
#include "lockstep/net/client.h"

namespace lockstep::launch {

/// The node that serves the rendezvous, as one of the others sees it, and those that would take its
/// place. Calls may come from any thread, next() from one.
class Succession {
 public:
  /// The server is the one at the start. The service is that of this node, which it may have to
  /// begin.
  Succession(Service& service, const RendezvousOptions& meeting, const net::ClientOptions& server,
      const NodeFacts& facts);

  /// Connects to the node that serves at the start. Throws as net::Client does.
  net::Client first() const { return net::Client(server_); }

  /// Takes this address and port for this node's, which then listens in case that it is to serve.
  void settle(const std::string& address, int port);

  /// Finds out who serves now that the last one is lost: this node may have to. Nothing if the run
  /// is over for it.
  std::optional<net::Client> next();

  void note(const NodePlan& plan);
  /// The one that serves has told where the world is now; empty: at the next of us.
  void move_to(const std::string& endpoint);
  /// This process stood still for so long that the others have gone on without it.
  void note_absence(bool was_away) { was_away_ = was_away; }
  /// This node is ending and follows no server.
  void leave() { is_leaving_ = true; }
  /// As that, and whoever is in next() returns.
  void stop() { leave(); }

  /// Notes which run is in this node's output folder now.
  void note_run(const std::string& run);

  NodeFacts facts() const;
  std::string endpoint() const;

  /// Keeps a sentence for the user; returns those since the last call.
  void tell(const std::string& text);
  std::vector<std::string> take_news();

 private:
  void stand_by();
  std::optional<std::vector<std::string>> heirs_of_loss();
  std::optional<net::Client> connect(const std::string& heir);
  void serve(const std::string& endpoint, std::vector<std::string> others, int tried);

  Service& service_;
  const RendezvousOptions meeting_;
  std::atomic<bool> is_leaving_{false}, was_away_{false};
  mutable std::mutex mutex_;  // of all that follows
  net::ClientOptions server_;
  NodeFacts facts_;
  FileDescriptor standby_;  // at which this node would serve
  NodePlan plan_;           // the last one, of which the heirs are left that were not tried
  bool is_moving_ = false;
  std::vector<std::string> news_;
};

/// A node's part in the rendezvous, on a thread of its own: it tells that the node lives, and
/// follows the next one that serves as soon as the last is lost, whatever the launcher is busy
/// with, be it a log on a slow disk.
class Membership {
 public:
  /// Connects to the node that serves. Throws as net::Client does. The succession must live longer.
  Membership(
      Succession& succession, std::chrono::milliseconds beat, std::chrono::milliseconds dead_after);
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;
  ~Membership();

  /// Returns a descriptor that becomes readable when hear() has news.
  int descriptor() const { return news_.get(); }

  /// Joins with the succession's facts, and begins to listen. Once.
  void join();

  /// Tells the server something. Nothing is thrown here: that it is lost is seen by hear().
  void tell(const AgentMessage& message);

  /// Returns the next order of the present server, if one has come, and the number of that server,
  /// which each one that is followed raises. What an earlier one had ordered is over.
  std::optional<Order> hear(int& server);

  /// Says whether none is left to follow.
  bool is_lost() const { return is_lost_; }

  /// Begins ranks of a generation that this server has ordered; false if that one is lost already.
  bool begin(std::int64_t generation, int server);

  /// Returns this node's address on the way to the server.
  const std::string& address() const { return address_; }

 private:
  using Clock = BootClock;

  void run();
  void listen();
  void await() const;
  bool take_orders();
  void send_all();
  void beat_if_due();
  bool follow();
  void introduce();
  void ring(const FileDescriptor& bell) const;

  Succession& succession_;
  std::chrono::milliseconds beat_, dead_after_;
  FileDescriptor news_, wake_;
  // Of the thread alone.
  std::optional<net::Client> client_;
  Clock::time_point last_beat_, last_heard_;
  std::string address_;

  std::mutex mutex_;
  std::deque<AgentMessage> outbox_;
  std::deque<Order> inbox_;
  std::int64_t begun_ = 0;             // the last generation of which there were ranks here
  std::optional<AgentMessage> ended_;  // what was told of their end
  std::optional<AgentMessage> leave_;  // that this node goes
  int server_ = 0;
  std::atomic<bool> is_lost_{false}, is_over_{false};
  std::thread thread_;
};

}  // namespace lockstep::launch
