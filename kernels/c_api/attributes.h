// Attributes as a host hands them over.
#ifndef HLO_DISPATCH_C_API_ATTRIBUTES_H_
#define HLO_DISPATCH_C_API_ATTRIBUTES_H_

#include "common/stored_attributes.h"
#include "hlo_dispatch/kernels.h"

struct hlo_dispatch_attributes {
  hlo_dispatch::StoredAttributes stored;
};

#endif  // HLO_DISPATCH_C_API_ATTRIBUTES_H_
