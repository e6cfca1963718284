#pragma once

#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/train/options/options.h"

namespace lockstep {

using Devices = std::vector<torch::Device>;

/// A way of training, by threads that are its ranks.
struct TriedWay {
  Parallel parallel = Parallel::kSerial;
  int ranks = 1;
  Precision precision = Precision::k32;
};

// Each throws what was not as it should be, on the device or between them.

/// Copies from pinned memory and back on a side stream, beside computing.
void try_copies_and_streams(torch::Device device);

/// Multiplies and convolves in bfloat16; returns how fast, in a half sentence.
std::string speed_text(torch::Device device);

/// Copies from one device to another.
void try_copies_between(torch::Device from, torch::Device to);

/// Takes what a snapshot would of a tensor that the device goes on to change.
void try_snapshot(torch::Device device);

/// Reduces over the devices, and sends a message round them; returns the engine's name.
std::string try_collectives(const Devices& devices);

/// Reduces, gathers and scatters in a world of this device alone; returns the engine's name.
std::string try_engine(torch::Device device);

/// Trains a small net on the devices, divided evenly among the ranks; expects the losses of the
/// CPU.
void try_training(const TriedWay& way, const Devices& devices);

}  // namespace lockstep
