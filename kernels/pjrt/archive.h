// Serialized executables with a header: what they were compiled by, which has to be there again.
#ifndef HLO_DISPATCH_PJRT_ARCHIVE_H_
#define HLO_DISPATCH_PJRT_ARCHIVE_H_

#include <string>

#include "pjrt/c_interface.h"

namespace hlo_dispatch::pjrt {

// The runtime's version and ours: what caches of executables have to tell apart.
Error* PlatformVersionOf(Place place, PlatformVersion* arguments);

Error* SerializeExecutable(Serialize* arguments);
Error* DeserializeExecutable(Deserialize* arguments);

}  // namespace hlo_dispatch::pjrt

#endif  // HLO_DISPATCH_PJRT_ARCHIVE_H_
