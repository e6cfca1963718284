#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/file_descriptor.h"
#include "lockstep/launch/rendezvous/messages.h"
#include "lockstep/launch/rendezvous/rendezvous_options.h"
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
  /// This node is ending and follows no server; whoever would follow it is refused at once, and
  /// goes on to the next.
  void leave();
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

}  // namespace lockstep::launch
