#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// TensorBoard's event files: records of TFRecord's form that hold protobuf messages of the type
// Event, of which only the fields for scalars are written.
namespace lockstep {

/// A number under a name; TensorBoard groups names by what comes before a slash.
struct EventScalar {
  std::string tag;
  double value = 0;  ///< stored as a float
};

/// The point of a run to which an event belongs.
struct EventPoint {
  double unix_seconds = 0;
  std::int64_t step = 0;
};

/// Returns the CRC-32C (Castagnoli, as in RFC 3720) of bytes.
std::uint32_t crc32c(std::string_view bytes);

/// Frames bytes as a record: length, checksum of the length, bytes, checksum of the bytes.
std::string event_record(std::string_view bytes);

/// Returns the record that a file begins with.
std::string version_event(const EventPoint& point);

/// Returns the record that says: the run goes on at this step. Readers drop what files before this
/// one have of it and of later steps, as they do after PyTorch's SummaryWriter(purge_step=...).
std::string restart_event(const EventPoint& point);

/// Returns the record of some numbers at one step.
std::string scalars_event(const EventPoint& point, const std::vector<EventScalar>& scalars);

/// Returns the name of a file that begins at this time. TensorBoard reads the files of a folder in
/// the order of their names.
std::string event_file_name(std::int64_t unix_seconds);

/// Returns whether a name is one of event_file_name(): those of other programs end otherwise.
bool is_event_file_name(std::string_view name);

/// Returns a name that comes after all of these, at this time or, where clocks differ, later.
std::string next_event_file_name(const std::vector<std::string>& names, std::int64_t unix_seconds);

}  // namespace lockstep
