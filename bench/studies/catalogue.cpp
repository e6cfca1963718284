#include "bench/studies/catalogue.h"

#include <algorithm>

#include "bench/studies/collectives/study.h"
#include "bench/studies/data_parallel/study.h"
#include "bench/studies/ddp_scaling/study.h"
#include "bench/studies/pipeline/study.h"
#include "bench/studies/scale_out/study.h"
#include "bench/studies/throughput/study.h"
#include "bench/studies/ways/study.h"

namespace lockstep::bench {

const std::vector<StudyEntry>& study_catalogue() {
  static const std::vector<StudyEntry> kStudies{
      {"data-parallel",
          "epoch times of two nets on Fashion-MNIST: 1, 2, 4 places, DataParallel against DDP",
          {"fashion-mnist", "mnist"}, data_parallel::make_study, data_parallel::prepare, false,
          true, nullptr, nullptr, 15},
      {"throughput",
          "seconds a sample of ResNet50: one place, DataParallel, a larger batch, half precision",
          {}, throughput::make_study, nullptr, false, true, nullptr, nullptr, 20},
      {"ddp-scaling",
          "ten epochs of ResNet18 on CIFAR-100: 1, 2, 4 places, one node or two, lockstep run or "
          "torchrun",
          {"cifar100"}, ddp_scaling::make_study, ddp_scaling::prepare, false, true, nullptr,
          nullptr, 35, true},
      {"pipeline",
          "ResNet50 cut over two places, pipelined by split size and schedule, against one place",
          {}, pipeline::make_study, nullptr, false, true, nullptr, nullptr, 40},
      {"scale-out",
          "a fixed time of training on 1, 2, 4, 8 nodes, with a worker killed in the middle of one "
          "run",
          {"images", "mnist"}, scale_out::make_study, scale_out::prepare, true, true, nullptr,
          scale_out::pretrain, 50, true},
      {"collectives",
          "time and bandwidth of all_reduce and others over message sizes: shm and threads against "
          "Gloo",
          {}, collectives::make_study, nullptr, false, false},
      {"ways", "your own grid: which way of spreading is the fastest for a model and this machine",
          {}, ways::make_study, nullptr, false, true, ways::explore}};
  return kStudies;
}

const StudyEntry* find_study(const std::string& name) {
  const auto& all = study_catalogue();
  const auto found = std::find_if(
      all.begin(), all.end(), [&](const StudyEntry& entry) { return entry.name == name; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace lockstep::bench
