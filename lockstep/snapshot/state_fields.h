#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/formats/json_fields.h"
#include "lockstep/nn/grad_scaler_state.h"

// The fields of a state.json that every state has, of the trainer's runs and of other programs: the
// run's id and the scaler.

namespace lockstep {

inline constexpr JsonLimits kStateLimits{.bytes = std::size_t{64} << 20};

/// Makes the id of a new run.
std::string new_run_id();

/// Returns the id in a state.json, of which nothing else is read; empty if there is none. Throws
/// DataError for text that is not strict JSON, or too long.
std::string run_id_in(std::string_view json, const std::string& file);

/// Returns the id of the run in an output folder: that of its newest snapshot which can be read;
/// empty if there is none.
std::string run_id_of_folder(const std::filesystem::path& output);

/// Writes a scaler's state; `null` without one.
nlohmann::ordered_json json_of(const std::optional<nn::GradScalerState>& scaler);

/// Reads the field `scaler`, which may be null but not missing.
std::optional<nn::GradScalerState> read_scaler(const JsonFields& fields);

}  // namespace lockstep
