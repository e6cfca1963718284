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

/// The server of the rendezvous, as another node sees it, and its successors. Calls may come from
/// any thread, next() from one.
class Succession {
 public:
  /// The server is the one at the start. The service is that of this node, which it may have to
  /// begin.
  Succession(Service& service, const RendezvousOptions& meeting, const net::ClientOptions& server,
      const NodeFacts& facts);

  /// Connects to the server of the start. Throws as net::Client does.
  net::Client first() const { return net::Client(server_); }

  /// Sets this node's address and port; from now on it listens, in case that it has to serve.
  void settle(const std::string& address, int port);

  /// Connects to the successor of a lost server, which this node may be. Nothing if the run is over
  /// for it.
  std::optional<net::Client> next();

  void note(const NodePlan& plan);
  /// The server has told where the world is now; empty: at its successor.
  void move_to(const std::string& endpoint);
  /// This process stood still for so long that the others have gone on without it.
  void note_absence(bool was_away) { was_away_ = was_away; }
  /// This node is ending and follows no server; whoever would follow it is refused at once, and
  /// goes on to the next. A call of next() under way returns.
  void leave();

  /// Notes which run is in this node's output folder now.
  void note_run(const std::string& run);

  NodeFacts facts() const;
  std::string endpoint() const;

  /// Keeps a message for the user; returns those since the last call.
  void tell(const std::string& text);
  std::vector<std::string> take_news();

 private:
  void stand_by();
  std::optional<std::vector<std::string>> successors_of_loss();
  std::optional<net::Client> connect(const std::string& successor);
  void serve(const std::string& endpoint, std::vector<std::string> others, int tried);

  Service& service_;
  const RendezvousOptions meeting_;
  std::atomic<bool> is_leaving_{false}, was_away_{false};
  mutable std::mutex mutex_;  // of all that follows
  net::ClientOptions server_;
  NodeFacts facts_;
  FileDescriptor standby_;  // at which this node would serve
  NodePlan plan_;           // the last one, with the successors that were not tried
  bool is_moving_ = false;
  std::vector<std::string> news_;
};

/// A node's connection to the rendezvous, on a thread of its own: it sends heartbeats, and follows
/// the successor as soon as the server is lost, whatever the launcher is busy with.
class Membership {
 public:
  /// Connects to the server. Throws as net::Client does. The succession must live longer.
  Membership(
      Succession& succession, std::chrono::milliseconds beat, std::chrono::milliseconds dead_after);
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;
  ~Membership();

  /// Returns a descriptor that becomes readable when hear() has news.
  int descriptor() const { return news_.get(); }

  /// Joins with the succession's facts, and begins to listen. Once.
  void join();

  /// Sends a message to the server. Never throws: hear() shows that it is lost.
  void tell(const AgentMessage& message);

  /// Returns the next order of the current server, if one has come, and that server's number, which
  /// grows with each successor. Orders of earlier servers are void.
  std::optional<Order> hear(int& server);

  /// Returns whether no server is left.
  bool is_lost() const { return is_lost_; }

  /// Begins the ranks of a generation that this server ordered; false if that one is lost already.
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
