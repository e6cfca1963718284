#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/plan/machine.h"
#include "lockstep/plan/profile/company.h"
#include "lockstep/plan/profile/cost_curve.h"

namespace lockstep::plan {

/// The costs of one layer of a model's chain on one place: seconds of a batch, bytes of a sample.
struct LayerCosts {
  std::string name;
  CostCurve forward;
  CostCurve backward;                   ///< the gradients of input and weights in one pass
  CostCurve backward_input;             ///< those of the input alone
  CostCurve backward_weight;            ///< those of the weights alone
  double activation_bytes = 0;          ///< that forward keeps for backward, a sample
  double output_bytes = 0;              ///< a sample
  std::vector<double> parameters = {};  ///< bytes of each, in order

  double parameter_bytes() const;
};

/// The costs of ways of spreading beside computing and links, measured on two places of one node.
struct Overheads {
  CostCurve hand_over = {};  ///< of a micro-batch of so many samples, between two stages
  CostCurve threads = {};    ///< of a step of replicas in threads, by the samples of each
  double socket_core = 0;    ///< seconds of a core for each byte that goes between nodes
  double gradient_core = 0;  ///< seconds of a core for each byte of a gradient that is copied to a
                             ///< bucket, or added to that of an earlier micro-batch
  double replica_bytes = 0;  ///< of memory that ddp needs within a node
  double socket_bytes = 0;   ///< of memory that it needs between nodes
};

/// The costs of training a model on one place of a device, measured there or taken from elsewhere.
struct ModelProfile {
  std::string model;
  std::string precision;  ///< as --precision takes it
  std::string device;     ///< `Intel Xeon, 1 core`
  std::string source;     ///< the command that measured it, or who published it
  bool is_measured = false;
  std::vector<LayerCosts> layers;
  CostCurve input = {};      ///< waiting for a batch
  CostCurve rest = {};       ///< of a step, that belongs to no layer: the loss, the bookkeeping
  double optimizer = 0;      ///< seconds a step, for all parameters
  double state_copies = 0;   ///< of the parameters, that the optimizer keeps: 2 for Adam
  double process_bytes = 0;  ///< that a process has before its first step
  double noise = 0;          ///< relative standard deviation of equal steps
  double flops = 0;          ///< of forward and backward, a sample; 0: not known
  Company company = {};      ///< of places of this device in one node
  Link within = {};          ///< between these places
  Overheads overheads = {};

  double parameter_bytes() const;
  double activation_bytes() const;
  double largest_parameter_bytes() const;

  /// Returns the seconds of a step in one place, with nothing else on the machine.
  double step_seconds(double batch) const;

  /// Returns the same costs on a device whose step of this batch takes so long.
  ModelProfile scaled_to(double batch, double seconds) const;
};

/// Throws InvalidArgument for a profile without layers, or a number that cannot be.
void check_profile(const ModelProfile& profile);

/// Writes a profile as JSON, and reads it. What a profile cannot hold is a DataError that names the
/// file.
std::string profile_text(const ModelProfile& profile);
ModelProfile parse_profile(const std::string& text, const std::string& file);

}  // namespace lockstep::plan
