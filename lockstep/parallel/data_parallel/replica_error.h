#pragma once

#include <cstddef>
#include <exception>

#include "lockstep/parallel/place/place.h"

namespace lockstep::data_parallel {

/// Throws an exception again, with the number and place of the replica that threw it.
///
/// The types of Lockstep, of LibTorch and of the standard library stay what they are, their texts
/// are preceded by `replica 1 (cpu cores 2-3): `. Another type cannot take a text: it becomes an
/// Error in which it is nested (std::rethrow_if_nested() gives it back).
[[noreturn]] void throw_from_replica(
    const std::exception_ptr& exception, std::size_t replica, const Place& place);

}  // namespace lockstep::data_parallel
