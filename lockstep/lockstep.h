#pragma once

// All of Lockstep that a program of its user needs. The library itself never includes this file.

#include "lockstep/comm/process_group.h"
#include "lockstep/comm/rendezvous.h"
#include "lockstep/comm/run_ranks.h"
#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/data/distributed_sampler.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/mnist.h"
#include "lockstep/nn/autocast.h"
#include "lockstep/nn/models/model.h"
#include "lockstep/parallel/data_parallel.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "lockstep/parallel/pipeline/pipeline.h"
#include "lockstep/parallel/pipeline/pipeline_stage.h"
#include "lockstep/parallel/place/place.h"
