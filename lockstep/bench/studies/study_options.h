#pragma once

#include <string>

namespace lockstep::bench {

/// Says how much of a study is measured, and on what.
struct StudyOptions {
  bool full = false;                   ///< the study's whole grid; else what minutes allow
  int cores = 1;                       ///< that may be used
  std::string data = "fashion-mnist";  ///< as `lockstep train --data` takes it: NAME or NAME:DIR
  int rounds = 0;                      ///< samples of every cell; 0: as many as the study says
};

}  // namespace lockstep::bench
