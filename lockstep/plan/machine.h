#pragma once

#include <string>

#include "lockstep/plan/model_profile.h"

namespace lockstep::plan {

/// Reads `25Gbit,50us`: a rate in bit/s (kbit, Mbit, Gbit) or byte/s (MB, GB), and a latency (us,
/// ms, s), in any order; without a latency it has the usual one, in seconds. Throws InvalidArgument
/// that shows the forms.
Link parse_link(const std::string& text, double usual_latency = 0);

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
  double place_price = 0;   ///< of each of its places for an hour, besides
  std::string device = {};  ///< a place's, where several are compared; else empty
  double jitter = 0;        ///< relative standard deviation between places in one step
  /// The nodes are made within one machine (`lockstep hosts --count`): their places slow each other
  /// down as those of one node do.
  bool is_one_machine = false;

  /// Returns how many of these places share caches and memory.
  int neighbours(int nodes_used, int a_node) const {
    return is_one_machine ? nodes_used * a_node : a_node;
  }
  int all_places() const { return nodes * places; }
  double all_price() const { return nodes * price + all_places() * place_price; }
};

/// Throws InvalidArgument for what cannot be: no nodes, a negative rate.
void check_machine(const Machine& machine);

/// Returns how many times the mean the slowest of `places` takes on average, where each is drawn
/// from a normal distribution with this relative standard deviation (Blom's approximation).
double slowest_of(int places, double jitter);

/// The ranks of a group: as many on each of its nodes.
struct Ranks {
  int nodes = 1;
  int a_node = 1;

  int all() const { return nodes * a_node; }
};

/// The algorithms of an all-reduce.
enum class AllReduce {
  kRing,         ///< through all ranks, node by node: each node's link carries the ring once
  kHierarchical  ///< within the nodes, between them, within again: in chunks, one behind the other
};

/// Return the seconds of a collective of this many bytes on every rank, with nothing else on the
/// links. A ring of n ranks sends 2 (n - 1) messages of bytes / n one after the other; a gather
/// half of them. A group of one takes no time.
double all_reduce_seconds(
    double bytes, const Ranks& ranks, const Machine& machine, AllReduce algorithm);
double all_gather_seconds(double bytes, const Ranks& ranks, const Machine& machine);

/// Returns the algorithm that the runtime takes: in levels where there are several nodes with
/// several ranks each that share memory, whose bytes their cores move; else a ring, as NCCL's.
AllReduce usual_all_reduce(const Ranks& ranks, const Machine& machine);

/// Returns the share of the time of such a collective in which a rank cannot compute: of a ring, or
/// of that all-reduce.
double core_share(const Ranks& ranks, const Machine& machine);
double core_share(double bytes, const Ranks& ranks, const Machine& machine, AllReduce algorithm);

}  // namespace lockstep::plan
