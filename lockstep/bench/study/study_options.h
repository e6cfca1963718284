#pragma once

#include <string>
#include <vector>

#include "lockstep/bench/study/ways_request.h"

namespace lockstep::bench {

/// The part of a study that is measured, and the hardware for it.
struct StudyOptions {
  bool full = false;  ///< the study's whole grid; else what takes minutes
  int cores = 1;      ///< that may be used
  /// Data sets in place of those that studies take by themselves, as `lockstep train --data` takes
  /// them: NAME or NAME:DIR. Each study looks for a name that it knows.
  std::vector<std::string> data = {};
  /// What trainings compute on, as `lockstep train --device` takes it; empty: what that chooses.
  /// Of a request: several, separated by commas.
  std::string device = {};
  /// Hosts to start ranks on; empty: hosts in network namespaces of this machine.
  std::vector<std::string> nodes = {};
  int rounds = 0;  ///< samples of every cell; 0: as many as the study says
  /// Times the work of a quick sample that each has, with a budget that allows more.
  int work = 1;
  /// File of weights that a study's net begins with, for studies that take one; empty: fresh ones.
  std::string pretrained = {};
  /// Without such a file the bench trains first weights itself; a bench that older versions began
  /// goes on with fresh ones.
  bool pretrains = true;
  WaysRequest ways = {};  ///< the grid of the study whose grid is the user's

  /// Returns the set of one of these names; `otherwise` if none was asked for.
  std::string data_of(const std::vector<std::string>& names, const std::string& otherwise) const;

  /// Returns true unless a device was named that has cores of its own.
  bool on_cores() const { return device.empty() || device == "auto" || device == "cpu"; }

  /// Returns true if this many places have to share cores.
  bool oversubscribed(int places) const { return on_cores() && places > cores; }

  /// Returns the rounds that were asked for, or else the study's.
  int rounds_or(int of_study) const { return rounds > 0 ? rounds : of_study; }
};

/// Returns the name of a set: `mnist` of `mnist:DIR`.
std::string data_name(const std::string& data);

}  // namespace lockstep::bench
