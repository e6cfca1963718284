#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace lockstep::cli {

using Facts = nlohmann::ordered_json;

/// Describes the host's system, processor, memory, limits, devices, network and scheduler. What
/// cannot be read is left out or null.
Facts host_facts();

/// Finds the value after `NAME :` in the text of /proc/cpuinfo or /proc/meminfo; empty text if
/// there is none.
std::string field_of(const std::string& text, const std::string& name);

/// Reads a value of /proc/meminfo, such as `16384 kB`; nothing if it is not one.
std::optional<double> bytes_of(const std::string& field);

/// Writes a number of bytes as people say it: `15.6 GiB`.
std::string bytes_in_words(double bytes);

/// Describes this build: versions, compiler, libraries.
Facts build_facts();

/// Describes build, host and the variables that change how fast or where ranks run: what `lockstep
/// env --json` prints and a bench keeps.
Facts environment_facts();

}  // namespace lockstep::cli
