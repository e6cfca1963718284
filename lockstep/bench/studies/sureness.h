#pragma once

#include <optional>
#include <span>
#include <string>

#include "lockstep/bench/statistics/median.h"

namespace lockstep::bench {

/// Tells whether the whole interval of a ratio lies above 1, or below: then it is told from 1. One
/// sample tells nothing.
bool above_one(const std::optional<Estimate>& ratio);
bool below_one(const std::optional<Estimate>& ratio);

/// Says that something was so in the whole interval of a ratio: `surely faster` if such an interval
/// holds the true ratio nine times in ten or more, which takes 5 rounds; of fewer rounds
/// `faster in every round`. One round has no interval: ask above_one() or below_one() first.
std::string sure(const Estimate& ratio, const std::string& what);

/// Says so of several ratios: surely only if that holds for each that has an interval.
std::string sure(std::span<const Estimate> ratios, const std::string& what);

/// Tells whether any of the ratios has an interval.
bool has_intervals(std::span<const Estimate> ratios);

/// Says on which side of 1 a ratio lies, in the words of sure(): `surely faster`,
/// `slower in every round`, `not told apart`, or `one round, so not sure`.
std::string told_from_one(
    const Estimate& ratio, const std::string& above, const std::string& below);

/// Names the side of 1 that a ratio lies on for a table: `above`, `below`, or `not told apart`,
/// `one round`.
std::string side_of_one(const Estimate& ratio, const std::string& above, const std::string& below);

/// Explains those words for ratios measured over so many rounds as these; nothing for none.
std::string about_sureness(std::span<const Estimate> ratios);

}  // namespace lockstep::bench
