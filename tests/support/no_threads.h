#pragma once

#include <cstddef>
#include <pthread.h>

namespace lockstep::testing {

/// Lets no thread begin, as where a container may have no more processes: no stack is that large.
class NoThreads {
 public:
  NoThreads() {
    ::pthread_getattr_default_np(&before_);
    pthread_attr_t huge = before_;
    ::pthread_attr_setstacksize(&huge, std::size_t{1} << 47);
    ::pthread_setattr_default_np(&huge);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;
  ~NoThreads() { ::pthread_setattr_default_np(&before_); }

 private:
  pthread_attr_t before_{};
};

}  // namespace lockstep::testing
