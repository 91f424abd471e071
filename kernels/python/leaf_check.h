// Check of a call's arguments: the same pytree as a known one, with the same objects at some of its leaves.
#ifndef HLO_DISPATCH_PYTHON_LEAF_CHECK_H_
#define HLO_DISPATCH_PYTHON_LEAF_CHECK_H_

#include "python/interop.h"

namespace hlo_dispatch::python {

// (description of the tuple of positional arguments, that of the dict of the others, types of leaves, is_deleted,
// flatten_one_level of JAX's registry) → a capsule for `CheckedLeaves`. A description is one of
//   ("leaf", number, id of the object that it has to be, or 0),
//   ("static", id of the object that it has to be),
//   ("none",), ("list", descriptions), ("tuple", descriptions), ("dict", keys, descriptions),
//   ("registered", id of the type, id of the metadata, descriptions): what `flatten_one_level` takes apart.
// The capsule keeps no reference to the types or to objects passed by id; the caller does.
Owned LeafCheck(PyObject* arguments);

// (capsule, positional arguments, others) → the list of leaves, or None where something is different or `is_deleted`.
Owned CheckedLeaves(PyObject* arguments);

// The same → the list of the leaves that may be any object. Of the other ones, which are compared by address, each call
// asks the next few whether they are deleted.
Owned OtherLeaves(PyObject* arguments);

}  // namespace hlo_dispatch::python

#endif  // HLO_DISPATCH_PYTHON_LEAF_CHECK_H_
