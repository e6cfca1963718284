#pragma once

#include <chrono>

#include "lockstep/comm/process_group.h"

namespace lockstep {

/// Makes the group of all ranks that MPI has started, whose collectives MPI carries; in place of
/// init_process_group(), in programs that link lockstep::mpi.
///
///     auto world = lockstep::init_mpi_process_group();  // mpirun -np 4 ./program
///
/// Initialises MPI with MPI_THREAD_MULTIPLE unless the program has, and finalises it at the exit of
/// a program that had not. Throws CommError if MPI cannot be called by several threads.
///
/// MPI knows neither deadlines nor groups that are given up. A call that takes longer than
/// `timeout` throws TimeoutError here; ProcessGroup::abort() ends all processes by MPI_Abort. A
/// collective makes progress while somebody asks for it, by Work::done() or wait(), or calls MPI
/// otherwise.
ProcessGroup init_mpi_process_group(std::chrono::milliseconds timeout = std::chrono::minutes(5));

}  // namespace lockstep
