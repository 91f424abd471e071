#include "common/shared_object.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>

#include <climits>
#include <cstdlib>

#include "common/failure.h"

namespace hlo_dispatch {

namespace {

// More than any vendor library has (oneDNN's SYCL build misses five); only stops a loader that repeats itself.
constexpr int kMaxDependencies = 40;

// The file that the loader says it misses: "libtbb.so.12: cannot open shared object file: …"; empty: something else.
std::string Missing(const std::string& message) {
  const std::string name = message.substr(0, message.find(": cannot open shared object file"));
  if (name.size() == message.size() || name.find_first_of("/: \t") != std::string::npos) return "";
  return name.find(".so") == std::string::npos ? "" : name;
}

}  // namespace

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

bool IsFile(const std::string& path) {
  struct stat found;
  return stat(path.c_str(), &found) == 0 && S_ISREG(found.st_mode);
}

std::string SharedObject::Find(const std::string& directory) const {
  const char* named = std::getenv(variable.c_str());
  if (named != nullptr && *named != '\0') {
    char whole[PATH_MAX];
    if (IsFile(named) && realpath(named, whole) != nullptr) return whole;
    Unavailable(variable + " names " + named + ", which is not a file; unset it or name the library's file");
  }
  for (const char* above : {"", "/../../.."}) {
    char whole[PATH_MAX];
    const std::string path = directory + above + "/" + file;
    if (IsFile(path) && realpath((directory + above).c_str(), whole) != nullptr) return std::string(whole) + "/" + file;
  }
  return file;
}

void CheckIsLoaded(const std::string& loaded, const std::string& path) {
  if (loaded != path) Unavailable("this process already uses " + loaded + "; it cannot also load " + path);
}

void* OpenWithDependencies(const std::string& path) {
  for (int i = 0; i < kMaxDependencies; ++i) {
    if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
    const char* said = dlerror();
    const std::string message = said == nullptr ? "the loader does not say why" : said;
    const std::string beside = DirectoryOf(path) + "/" + Missing(message);
    if (path.find('/') == std::string::npos || !IsFile(beside)) Unavailable(path + " cannot be loaded: " + message);
    OpenWithDependencies(beside);
  }
  Unavailable(path + " cannot be loaded: its dependencies never end");
}

std::string PathOf(void* handle, const std::string& otherwise) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr || map->l_name == nullptr) return otherwise;
  return *map->l_name == '\0' ? otherwise : map->l_name;
}

}  // namespace hlo_dispatch
