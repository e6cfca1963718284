#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep {

/// Counts the letters to insert, delete, replace, or swap with their neighbour, that make one word
/// the other.
std::size_t edit_distance(const std::string& from, const std::string& to);

/// Proposes the known word that is nearest: `; did you mean --nproc-per-node?`; empty text if none
/// is near.
///
/// Underscores count as dashes; a word that begins a known one is near.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& known);

}  // namespace lockstep
