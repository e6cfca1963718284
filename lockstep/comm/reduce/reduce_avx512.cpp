#include "lockstep/comm/reduce/reduce_loops.h"

namespace lockstep::reduce {

void reduce_avx512(const Job& job) { reduce_any(job); }

}  // namespace lockstep::reduce
