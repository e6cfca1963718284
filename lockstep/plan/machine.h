#pragma once

#include <string>

#include "lockstep/plan/profile/cost_curve.h"

namespace lockstep::plan {

/// A connection over which places exchange data.
struct Link {
  double latency = 0;           ///< seconds of a message of nothing
  double bytes_per_second = 0;  ///< in each direction; 0: as fast as you like
  /// The share of a transfer's time in which it keeps a place from computing: 1 where the place
  /// moves the bytes itself, as in shared memory, 0 where an engine of its own does.
  double core_share = 0;
  /// Seconds of a message by its bytes, where they were measured; then the first two only describe.
  CostCurve measured = {};

  double seconds(double bytes) const;

  bool operator==(const Link&) const = default;
};

/// Reads `25Gbit,50us`: a rate in bit/s (kbit, Mbit, Gbit) or byte/s (MB, GB), and a latency (us,
/// ms, s), in any order; the latency may be left out. Throws InvalidArgument that shows the forms.
Link parse_link(const std::string& text);

/// Returns the link with another latency; each message of a measured one takes as much more, or
/// less.
Link with_latency(Link link, double seconds);

/// Writes a link as parse_link reads it, and says if it was measured.
std::string text_of(const Link& link);

/// The most places of all nodes together.
inline constexpr int kMostPlaces = 1 << 20;

/// The machines that a plan is made for: equal nodes of equal places.
struct Machine {
  int nodes = 1;
  int places = 1;           ///< of a node
  Link within = {};         ///< between places of a node; each place has its own
  Link between = {};        ///< between nodes; all places of a node share it
  double memory_bytes = 0;  ///< of a place; 0: not known
  double price = 0;         ///< of a node for an hour
  double jitter = 0;        ///< relative standard deviation between places in one step
  /// The nodes are made within one machine (`lockstep hosts --count`): their places slow each other
  /// down as those of one node do.
  bool is_one_machine = false;

  /// Of these places a node, how many share caches and memory.
  int neighbours(int nodes_used, int a_node) const {
    return is_one_machine ? nodes_used * a_node : a_node;
  }
  int all_places() const { return nodes * places; }
};

/// Throws InvalidArgument for what cannot be: no nodes, a negative rate.
void check_machine(const Machine& machine);

/// Returns how many times the mean the slowest of `places` takes on average, where each is drawn
/// from a normal distribution with this relative standard deviation (Blom's approximation).
double slowest_of(int places, double jitter);

}  // namespace lockstep::plan
