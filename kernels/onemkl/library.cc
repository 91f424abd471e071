#include "onemkl/library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>

#include "common/failure.h"
#include "common/provider.h"
#include "common/shared_object.h"

namespace hlo_dispatch::onemkl {

namespace {

// MKL_Set_Threading_Layer's numbers. The Intel and GNU layers want a libm and an OpenMP runtime preloaded.
constexpr int kSequential = 1;
constexpr int kTbb = 4;

// Asked for anything while one of these is missing, oneMKL ends the process: look before asking.
void CheckParts(const std::string& path, const std::string& directory, const std::string& suffix) {
  for (const char* part : {"core", "intel_lp64", "sequential"}) {
    const std::string file = std::string("libmkl_") + part + ".so" + suffix;
    if (!IsFile(directory + "/" + file)) Unavailable(path + " lacks " + file + " beside it");
  }
}

std::string ChooseThreads(void* handle, const std::string& directory, const std::string& suffix) {
  const char* chosen = std::getenv("MKL_THREADING_LAYER");
  if (chosen != nullptr && *chosen != '\0') {
    std::string layer = chosen;
    std::transform(layer.begin(), layer.end(), layer.begin(),
                   [](unsigned char letter) { return std::tolower(letter); });
    return layer;
  }
  const auto set_layer = reinterpret_cast<int (*)(int)>(dlsym(handle, "MKL_Set_Threading_Layer"));
  if (set_layer == nullptr) return "its own";
  if (!IsFile(directory + "/libmkl_tbb_thread.so" + suffix) || !IsFile(directory + "/libtbb.so.12")) {
    set_layer(kSequential);
    return "sequential";
  }
  OpenWithDependencies(directory + "/libtbb.so.12");
  set_layer(kTbb);
  return "tbb";
}

// The number in "…Version 2026.2-Product Build…", up to what is no part of it.
std::string VersionIn(const std::string& text) {
  const std::string before = "Version ";
  const size_t found = text.find(before);
  if (found == std::string::npos) return "unknown";
  const size_t begin = found + before.size();
  size_t end = begin;
  while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '.')) ++end;
  return end == begin ? "unknown" : text.substr(begin, end - begin);
}

}  // namespace

const Loaded& Load(const std::string& path) {
  static std::mutex mutex;
  static const Loaded* loaded = nullptr;  // never deleted
  std::lock_guard<std::mutex> lock(mutex);
  if (loaded != nullptr) {
    CheckIsLoaded(loaded->path, path);
    return *loaded;
  }
  const std::string directory = DirectoryOf(path);
  const size_t ending = path.rfind(".so");
  const std::string suffix = ending == std::string::npos ? "" : path.substr(ending + 3);
  CheckParts(path, directory, suffix);
  void* handle = OpenWithDependencies(path);
  const auto version = reinterpret_cast<void (*)(char*, int)>(dlsym(handle, "MKL_Get_Version_String"));
  if (version == nullptr) Unavailable(path + " is not oneMKL: it has no function MKL_Get_Version_String");
  auto made = std::make_unique<Loaded>();
  made->path = path;
  made->runtime = ChooseThreads(handle, directory, suffix);
  char text[256] = {};
  version(text, sizeof(text));
  made->version = VersionIn(text);
  Provider::OfferMkl(path, made->version);
  loaded = made.release();
  return *loaded;
}

}  // namespace hlo_dispatch::onemkl
