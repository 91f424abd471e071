// Opening shared libraries that wheels bring. They lie in one directory that the system's loader is not told about, so
// whatever it misses is loaded first, from beside the library.
#ifndef HLO_DISPATCH_COMMON_SHARED_OBJECT_H_
#define HLO_DISPATCH_COMMON_SHARED_OBJECT_H_

#include <string>

namespace hlo_dispatch {

// Search for a library file without an explicit path.
struct SharedObject {
  std::string file;
  std::string variable;  // the environment variable that names another one

  // The file that the environment names; one in `directory`, or three above it, which is where pip puts libraries when
  // `directory` is a package's; else the bare name, for the system's loader. Throws Failure(kUnavailable) where the
  // variable names no file.
  std::string Find(const std::string& directory) const;
};

// The directory of a path, without the slash; "." where it has none.
std::string DirectoryOf(const std::string& path);
bool IsFile(const std::string& path);

// Throws Failure(kUnavailable) unless the path is that of the library of its kind that this process has loaded.
void CheckIsLoaded(const std::string& loaded, const std::string& path);

// dlopen's handle; throws Failure(kUnavailable) with the loader's words where that fails.
void* OpenWithDependencies(const std::string& path);

// Path of a handle's library; `otherwise` if that is unknown.
std::string PathOf(void* handle, const std::string& otherwise);

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_SHARED_OBJECT_H_
