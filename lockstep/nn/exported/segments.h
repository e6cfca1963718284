#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/nn/exported/code.h"
#include "lockstep/nn/exported/graph_parts.h"

namespace lockstep::nn::exported {

/// Steps of a program in a row, which a stage of a pipeline may run.
struct Segment {
  std::size_t begin = 0, end = 0;
  /// The values that are alive before and after it, also those that it hands on as they are; of the
  /// last one the outputs that are wanted.
  std::vector<Place> arriving = {}, leaving = {};
  std::vector<std::size_t> held = {};    ///< inputs of the graph that it takes from its own tensors
  std::vector<std::size_t> stored = {};  ///< outputs that it writes into held tensors and inputs
};

/// An archive's programs, cut into a chain of segments.
struct Segments {
  std::vector<std::string> names;                 ///< of modules; each once
  std::vector<std::vector<Segment>> of_programs;  ///< as many of each program as names
  /// For each held tensor the segment that has it: the first one that uses it in any program. What
  /// others use of it too, a parameter, they are handed; all other tensors never change then.
  std::vector<std::size_t> owners;
};

/// Note [Cutting a program]
/// A program may be cut before the first step of a call of a Python module. Of the calls those are
/// taken before which few bytes are alive: none that has a place with fewer close by. So a residual
/// block is cut where its branches have met, whatever it is made of. Segments of very few steps
/// join the one before.
///
/// All that is alive at a cut travels over it, as far as the segment that uses it last: a U-Net's
/// skips, an encoder's output, and a tied weight, whose gradient comes back the same way. Where
/// values alive at a cut share memory that a later step writes to, or where a later step writes to
/// a buffer that was used before, it is no cut.
///
/// Of two programs the cuts are those calls that both have, in one order.

/// Cuts the programs. `outputs` are the names of those that the last segment returns; the first
/// tensor of each program if there is none.
Segments segments_of(const Code& code, const std::vector<std::string>& outputs);

/// Returns the places of the wanted outputs, in their order.
std::vector<Place> places_of(const Program& program, const std::vector<std::string>& outputs);

}  // namespace lockstep::nn::exported
