#include "common/loader.h"

#include <atomic>

#include "common/failure.h"

namespace hlo_dispatch {

namespace {

std::atomic<Loader> loader{nullptr};

}  // namespace

void SetLoader(Loader chosen) { loader.store(chosen); }

void LoadNow(const std::string& name) {
  const Loader chosen = loader.load();
  const std::string problem =
      chosen == nullptr ? "call hlo_dispatch.register_kernels() before loading this executable" : chosen(name);
  if (problem.empty()) return;
  Unavailable("this executable calls " + name + ", which is not loaded in this process: " + problem);
}

}  // namespace hlo_dispatch
