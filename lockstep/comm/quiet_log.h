#pragma once

namespace lockstep {

/// Keeps LibTorch's own log silent while any object of this type exists: its lines about a store
/// have a page of C++ frames each, and what matters is in our errors. Does nothing for a user who
/// asks for the log by TORCH_CPP_LOG_LEVEL.
class QuietLog {
 public:
  QuietLog();
  QuietLog(const QuietLog&) = delete;
  QuietLog& operator=(const QuietLog&) = delete;
  ~QuietLog();
};

}  // namespace lockstep
