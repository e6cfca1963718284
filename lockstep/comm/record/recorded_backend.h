#pragma once

#include <memory>

#include "lockstep/comm/backend.h"
#include "lockstep/liveness/group_record.h"

namespace lockstep {

/// Returns a backend that also records each call of the group where the launcher of this process
/// reads it, so that it can say of a rank that hangs in which collective the others wait for it.
/// Without a record it is the given one.
std::shared_ptr<Backend> recorded(std::shared_ptr<Backend> backend, GroupRecord record);

/// Does that for the group of all ranks.
std::shared_ptr<Backend> recorded_world(std::shared_ptr<Backend> backend);

}  // namespace lockstep
