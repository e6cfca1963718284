#pragma once

#include <chrono>
#include <string>

#include "lockstep/comm/store.h"

namespace lockstep {

/// A rank that joins a world at a store, as the others see it.
struct Member {
  int rank = 0;
  int size = 1;
  std::string run = {};      ///< the same for all of a run, and another for another run
  std::string process = {};  ///< other for each process; messages show the first line
  std::string place = {};    ///< where they meet, for messages
};

/// Describes this process, for Member::process.
std::string this_process();

/// Makes sure that all who come to a store are of one world: of one run and size, each rank once.
/// Rank 0 decides what world that is.
///
/// Throws InvalidArgument that says what differs; then exchange_texts() throws the same on the
/// other ranks, unless the stranger is of another run. Throws TimeoutError when rank 0 does not
/// come.
void check_one_world(const Store& store, const Member& member, std::chrono::milliseconds timeout);

}  // namespace lockstep
