#pragma once

#include <exception>
#include <optional>

#include "lockstep/core/error.h"

namespace lockstep {

/// Keeps the memory of tensors on CPUs for the tensors that follow, in huge pages, from now on and
/// in the whole process.
///
/// Note [Memory of a step]
/// A step of training frees its tensors and makes the same ones again. The C library gives large
/// blocks back to the system, which clears a page at its first use: up to a third of a step. So
/// blocks of 64 KB and more come from one range of addresses of our own, of as many bytes as the
/// machine has, whose pages stay. Smaller blocks, and what does not fit, come from LibTorch's
/// allocator as before. Where the range cannot be had (a limit on addresses, as by `ulimit -v`),
/// under a sanitizer, or with LOCKSTEP_HOST_MEMORY=libtorch in the environment, nothing changes.
///
/// init_process_group() does this. A second call does nothing.
void keep_host_memory();

/// Returns the pages that no tensor uses to the system, such as after a phase that needed more
/// memory than the next one.
void release_host_memory();

/// Converts an exception of LibTorch that reports too little memory on a device or the host, or one
/// that has such an exception nested in it: one sentence with the amount, and what helps. Returns
/// nothing for other exceptions.
std::optional<MemoryError> as_memory_error(const std::exception& error);

}  // namespace lockstep
